"""Searches the adapters' tables with a scripted engine, and judges adapters that run."""
