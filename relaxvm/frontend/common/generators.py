"""Random generators, which a program makes where it begins."""

from __future__ import annotations

from ...ir import BindingBlock, Function, IRModule, SeqExpr, VarBinding
from .emitter import Session

__all__ = ["with_effects"]


def with_effects(module: IRModule, session: Session) -> IRModule:
    """The module; if calls with effects were bound, with a "main" that is not pure, and makes the
    random generators of the session first."""
    if not session.effects:
        return module
    var = module.get_global_var("main")
    main = module[var]
    assert isinstance(main, Function)
    body = main.body
    assert isinstance(body, SeqExpr)
    if session.generators:
        made = BindingBlock([VarBinding(found, call) for found, call in session.generators])
        body = SeqExpr([made, *body.blocks], body.body)
    del module[var]
    module["main"] = main.replace(body=body, is_pure=False)  # a variable of the new type
    return module
