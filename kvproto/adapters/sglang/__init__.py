"""The backend for SGLang: `--disaggregation-transfer-backend kvproto` (see `install`)."""
