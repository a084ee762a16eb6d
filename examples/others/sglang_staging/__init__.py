"""SGLang 0.5.23's staging protocol as tables, with the names of its code."""
