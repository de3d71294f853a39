"""Relay programs with data types: lists, trees, options, numbers, recurrent networks.

Each runs with all rewritings of the core, with each of them off in turn, and with none, and is
compared with the evaluator of the syntax tree; the networks also with numpy.
"""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relaxvm
from relaxvm.core.operations import REWRITINGS
from relaxvm.errors import LimitError, MatchError, ParseError, UnreachableClauseWarning
from relaxvm.frontend.relay import from_text
from relaxvm.limits import Limits

from .relay_evaluator import NoClause, assert_same, evaluate, to_list
from .relay_texts import HEAD, PRELUDE, PROGRAMS, XS

NAMES = [rewriting.name for rewriting in REWRITINGS]
OPTIMIZE: list[Any] = [True, False, *[set(NAMES) - {name} for name in NAMES]]


def run(text: str, *args: Any, optimize: Any = True, limits: Limits | None = None) -> Any:
    executable = relaxvm.build(from_text(HEAD + text))
    machine = relaxvm.VirtualMachine(executable, optimize=optimize, limits=limits)
    return machine["main"](*args)


def check(text: str, *args: Any) -> Any:
    expected = evaluate(text, *args, std=PRELUDE)
    module = from_text(HEAD + text)
    executable = relaxvm.build(module)
    result = None
    for optimize in OPTIMIZE:
        result = relaxvm.VirtualMachine(executable, optimize=optimize)["main"](*args)
        assert_same(result, expected)
    compiled = relaxvm.build(module, exec_mode="compiled")
    assert_same(relaxvm.VirtualMachine(compiled)["main"](*args), expected)
    return result


def int32(value: int) -> NDArray[Any]:
    return np.array(value, np.int32)


def tensors(*shape: int, seed: int = 1) -> NDArray[Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LOOP = """
def @range(%n: int32, %acc: List[int32]) -> List[int32] {
  if (%n == 0) { %acc } else { @range(%n - 1, Cons(%n, %acc)) }
}
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    check(PROGRAMS[name].replace("XS;", XS), int32(2))


def test_every_function_of_the_prelude_is_used() -> None:
    texts = "".join(PROGRAMS.values())
    for name in re.findall(r"def @(\w+)", PRELUDE):
        assert f"@{name}(" in texts or f"@{name}," in texts or f"@{name})" in texts


# Recurrent networks

CELL = """
def @cell(%x: Tensor[(1, 4), float32], %h: Tensor[(1, 3), float32], %c: Tensor[(1, 3), float32],
          %w: Tensor[(12, 4), float32], %u: Tensor[(12, 3), float32], %b: Tensor[(12,), float32]) {
  %0 = nn.dense(%x, %w, units=12);
  %1 = nn.dense(%h, %u, units=12);
  %2 = nn.bias_add(add(%0, %1), %b);
  %3 = split(%2, indices_or_sections=4, axis=1);
  %4 = sigmoid(%3.1) * %c + sigmoid(%3.0) * tanh(%3.2);
  (sigmoid(%3.3) * tanh(%4), %4)
}
"""

LSTM = CELL + """
def @list[A](%t: (A, A, A, A, A)) -> List[A] {
  Cons(%t.0, Cons(%t.1, Cons(%t.2, Cons(%t.3, Cons(%t.4, Nil)))))
}
def @main(%xs: Tensor[(5, 4), float32], %w: Tensor[(12, 4), float32],
          %u: Tensor[(12, 3), float32], %b: Tensor[(12,), float32]) {
  let %zero = zeros(shape=[1, 3], dtype="float32");
  let %step = fn (%s, %x) { @cell(%x, %s.0, %s.1, %w, %u, %b) };
  @foldl(%step, (%zero, %zero), @list(split(%xs, indices_or_sections=5)))
}
"""


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def cell(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
    i, f, g, o = np.split(x @ w.T + h @ u.T + b, 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def test_lstm_over_a_list() -> None:
    xs, w, u, b = tensors(5, 4), tensors(12, 4), tensors(12, 3), tensors(12)
    h, c = check(LSTM, xs, w, u, b)
    state = np.zeros((1, 3)), np.zeros((1, 3))
    for x in xs:
        state = cell(x[None], *state, w, u, b)
    np.testing.assert_allclose(h, state[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(c, state[1], rtol=1e-5, atol=1e-6)


TREE_LSTM = """
def @lstm(%t: Tree[Tensor[(1, 4), float32]], %w: Tensor[(9, 4), float32],
          %u: Tensor[(9, 3), float32], %wf: Tensor[(3, 4), float32], %uf: Tensor[(3, 3), float32])
    -> (Tensor[(1, 3), float32], Tensor[(1, 3), float32]) {
  match (%t) {
    Rose(%x, %children) => {
      let %zero = zeros(shape=[1, 3], dtype="float32");
      let %states = @map(fn (%child) { @lstm(%child, %w, %u, %wf, %uf) }, %children);
      let %h = @foldl(fn (%a, %s) { %a + %s.0 }, %zero, %states);
      %0 = split(nn.dense(%x, %w) + nn.dense(%h, %u), indices_or_sections=3, axis=1);
      %1 = nn.dense(%x, %wf);
      let %kept = @foldl(fn (%a, %s) { %a + sigmoid(%1 + nn.dense(%s.0, %uf)) * %s.1 }, %zero,
                         %states);
      let %c = sigmoid(%0.0) * tanh(%0.1) + %kept;
      (sigmoid(%0.2) * tanh(%c), %c)
    }
  }
}
"""

Shape = tuple[int, list["Shape"]]


def random_tree(rng: random.Random, count: int) -> Shape:
    """A tree of `count` nodes, numbered from 0."""
    nodes: list[Shape] = [(i, []) for i in range(count)]
    for i in range(1, count):
        nodes[rng.randrange(i)][1].append(nodes[i])
    return nodes[0]


def tree_text(tree: Shape) -> str:
    children = "Nil"
    for child in reversed(tree[1]):
        children = f"Cons({tree_text(child)}, {children})"
    return f"Rose(%x.{tree[0]}, {children})"


@pytest.mark.parametrize("seed", range(3))
def test_tree_lstm(seed: int) -> None:
    count = 9
    tree = random_tree(random.Random(seed), count)
    xs, w, u = tensors(count, 4, seed=seed), tensors(9, 4), tensors(9, 3)
    wf, uf = tensors(3, 4), tensors(3, 3)
    text = TREE_LSTM + f"""
    def @main(%xs: Tensor[({count}, 4), float32], %w, %u, %wf, %uf) {{
      let %x = split(%xs, indices_or_sections={count});
      @lstm({tree_text(tree)}, %w, %u, %wf, %uf)
    }}"""

    def expected(node: Shape) -> Any:
        states = [expected(child) for child in node[1]]
        x = xs[node[0]][None]
        h = sum([s[0] for s in states], np.zeros((1, 3)))
        i, g, o = np.split(x @ w.T + h @ u.T, 3, 1)
        kept = sum([sigmoid(x @ wf.T + a @ uf.T) * c for a, c in states], np.zeros((1, 3)))
        c = sigmoid(i) * np.tanh(g) + kept
        return sigmoid(o) * np.tanh(c), c

    found = check(text, xs, w, u, wf, uf)
    for a, b in zip(found, expected(tree), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_loop_over_a_list_that_grows_a_tensor() -> None:
    text = """
    def @join(%xs: List[Tensor[(?, 2), float32]]) -> Tensor[(?, 2), float32] {
      match? (%xs) {
        Cons(%x, Nil) => %x,
        Cons(%x, %rest) => concatenate((%x, @join(%rest))),
      }
    }
    def @main(%a: Tensor[(1, 2), float32], %b: Tensor[(3, 2), float32]) {
      let %first: Tensor[(?, 2), float32] = %a;
      let %joined = @join(Cons(%a, Cons(%b, Cons(%first, Nil))));
      let %f = fn (%x: Tensor[(?, 2), float32]) { nn.relu(%x) };
      (%joined, @map(%f, Cons(%joined, Cons(%a, Nil))))
    }"""
    check(text, tensors(1, 2), tensors(3, 2))


# Long lists


def test_a_list_of_a_million_elements() -> None:
    text = LOOP + """
    def @count(%n: int32, %xs: List[int32]) -> int32 {
      match (%xs) { Cons(_, %rest) => @count(%n + 1, %rest), Nil => %n }
    }
    def @main(%n: int32) {
      let %xs = @range(%n, Nil);
      (@count(0, @rev(%xs)), @hd(@rev(%xs)), %xs)
    }"""
    count, last, xs = run(text, int32(1_000_000))
    assert (count, last) == (1_000_000, 1_000_000)
    assert xs.fields[0] == 1


def test_deep_recursion_over_a_list() -> None:
    text = LOOP + "def @main(%n: int32) { @length(@map(negative, @range(%n, Nil))) }"
    limits = Limits(call_depth=200_001)
    assert run(text, int32(100_000), limits=limits) == 100_000


# Matches


def test_a_match_without_a_clause_for_a_value() -> None:
    text = """
    def @main(%n: int32) { let %xs = if (%n == 0) { Nil } else { Cons(%n, Nil) }; @hd(%xs) }"""
    assert check(text, int32(3)) == 3
    with pytest.raises(MatchError, match="Nil"):
        run(text, int32(0))
    with pytest.raises(NoClause, match="Nil"):
        evaluate(text, int32(0), std=PRELUDE)


def test_a_match_must_be_exhaustive() -> None:
    with pytest.raises(ParseError) as caught:
        from_text(HEAD + "def @main(%n: List[int32]) { match (%n) { Cons(%x, Nil) => %x } }")
    message = "3:30: the match is not exhaustive; it has no clause for Cons(_, Cons(_, _)), Nil"
    assert message in str(caught.value)


def test_a_clause_that_is_never_reached() -> None:
    text = "def @main(%n: List[int32]) { match (%n) { _ => 1, Nil => 2 } }"
    with pytest.warns(UnreachableClauseWarning, match=r"the clause Nil.* is never") as caught:
        from_text(HEAD + text, file="net.relay")
    assert (caught[0].filename, caught[0].lineno) == ("net.relay", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("match (1) { Nil => 2 }", "pattern Nil: expected int32, got List[_]"),
        ("match (Nil) { (%a, %b) => 2, _ => 3 }", "the pattern: expected List[_], got (_, _)"),
        ("match (Nil) { Cons(%a) => 2 }", "constructor Cons has 2 fields, got 1 patterns"),
        ("match (Nil) { Cons(%a, %a) => 2 }", "%a is defined twice in a pattern"),
        ("match (Nil) { Cosn(%a, %b) => 2 }", "unknown constructor Cosn; did you mean 'Cons'"),
        ("match (Nil) { x => 2 }", "unknown constructor x; a variable is %x"),
        ("match (Nil) { Nil => 1, _ => 2f }", "the clause: expected int32, got float32"),
        ("Cons(1, Cons(2f, Nil))", "argument 2: expected List[int32], got List[float32]"),
        ("Cons(1)", "constructor Cons: expected 2 arguments, got 1"),
        ("Nil(1)", "expected a function, got List[_]"),
        ("let %x: List = Nil; 1", "type List: expected 1 type argument, got 0"),
        ("let %x: nat[int32] = zero; 1", "type nat: expected 0 type arguments, got 1"),
        ("ref_read(1)", "ref_read: expected int32, got ref(_)"),
        ("ref_write(ref(1), 2f)", "the value in the ref: expected int32, got float32"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        from_text(f"{HEAD}def @main() {{ {text} }}")
    assert message in str(caught.value)


def test_lists_of_the_evaluator() -> None:
    """The oracle itself."""
    found = evaluate("def @main() { @rev(Cons(1, Cons(2, Nil))) }", std=PRELUDE)
    assert [int(x) for x in to_list(found)] == [2, 1]


# Mutants


_TOKEN = re.compile(r"\s+|[%@]?\w+|.")


@pytest.mark.filterwarnings("ignore::relaxvm.errors.UnreachableClauseWarning")
@pytest.mark.parametrize("seed", range(20))
def test_mutants_are_refused_or_compile(seed: int) -> None:
    """A text with a few tokens removed, doubled or exchanged ends in an error, or in an
    executable."""
    rng = random.Random(seed)
    texts = [HEAD + text.replace("XS;", XS) for text in (*PROGRAMS.values(), LSTM, TREE_LSTM)]
    for _ in range(15):
        tokens = _TOKEN.findall(rng.choice(texts))
        for _ in range(rng.randint(1, 3)):
            i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
            tokens[i : i + 1] = rng.choice([[], [tokens[i]] * 2, [tokens[j]]])
        try:
            module = from_text("".join(tokens))
        except (ParseError, LimitError):
            continue
        relaxvm.build(module)
