"""What the runs in vLLM and in SGLang share: which build ran, and the one table of them all."""
