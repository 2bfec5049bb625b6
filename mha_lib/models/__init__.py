"""Small Transformers, the tasks they learn, their training, and trained models that ship or come from elsewhere.

Imports the layer (``mha_lib.attention``) and nothing else of this library. Data that ship with it lie beside the
code: ``weights`` (the small models, trained) and ``sentences`` (attention maps of a real model).
"""
