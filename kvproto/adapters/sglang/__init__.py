"""The backend for SGLang: `--disaggregation-transfer-backend kvproto`, once both are installed (see `install`)."""
