"""Runs on disk: saved, loaded in another process, and written now and then as checkpoints.

==================  ==========================================================================
module              job
==================  ==========================================================================
``layout``          the parts of a file, and how they are packed: the format
``kinds``           the table of values: how each kind is found, written, read and checked
``states``          the objects of builtins among them: caches, recurrent states, generators
``memory``          the memory of arrays, and which arrays share it
``programs``        what a file refers to in the executable: its digest, and its constants
``writer``          from a paused run to a file
``reader``          from a file to its parts, all of them checked
``verifier``        whether a virtual machine can be where the frames say
``checkpoints``     files that are replaced now and then while a run goes on
==================  ==========================================================================

``docs/suspend.md`` describes the format.
"""
