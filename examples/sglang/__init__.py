"""SGLang in processes of its own, with KV that kvproto carries: `python -m examples.sglang.run --help`."""
