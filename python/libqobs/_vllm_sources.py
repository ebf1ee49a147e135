# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The qobs authors
"""The layers that vLLM builds without a quant_config, read from its sources: nothing of vLLM is imported.

Every class of the registry is followed from its __init__ through the classes that it builds, as far as their arguments
say what a quant_config is. Both branches of a condition count. Names are those of vLLM's modules and, where a mapper or
a list of stacked parameters renames them, those of the files.
"""
from __future__ import annotations

import ast
import functools
import os
import re
from typing import Any, Collection, Iterator, NamedTuple, Union

LINEAR = "vllm.model_executor.layers.linear"
DEPTH = 40  # of classes inside classes
THIS_METHOD = re.compile(r"^isinstance\([^()]*quant_config, [\w.]*CompressedTensorsConfig\)$")
# Modules of other packages, which vLLM takes as they are.
FOREIGN = re.compile(r"AutoModel\w*[.]from_\w+|timm[.]create_model")
# Conditions on other methods of quantization than compressed-tensors, on lists of published configurations, on drafts.
OTHER_METHODS = re.compile(r"isinstance\([^()]*quant_config|GPTQ|AWQ|Awq|awq|gptq|get_name\(\)|bitsandbytes|modelopt|"
                           r"is_int4|disable_quant_module|mtp[.]layers")


class Place(NamedTuple):
    """A definition and the module that it is in."""
    module: str
    node: Any


class Nothing:
    """The value None."""


NONE = Nothing()


class Node:
    """A module. `quantized`: None if it is no linear layer; it may have children and be one, by the branch taken."""

    def __init__(self, quantized: bool | None = None, home: Place | None = None) -> None:
        self.quantized, self.home = quantized, home
        self.children: dict[str, Node] = {}

    def add(self, name: str, node: Node) -> None:
        old = self.children.get(name)
        self.children[name] = old.merged(node) if old else node

    def merged(self, other: Node) -> Node:
        """Of two branches: a layer stays if one of them does not quantize it."""
        if self is other:
            return self
        known = [n.quantized for n in (self, other) if n.quantized is not None]
        both = Node(all(known) if known else None, self.home or other.home)
        for one in (self, other):
            for name, child in one.children.items():
                both.add(name, child)
        return both

    def leaves(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
        if self.quantized is not None:
            yield path, self.quantized
        for name, child in self.children.items():
            yield from child.leaves((*path, name))


class Function(NamedTuple):
    """A function or method, and what its names are bound to."""
    place: Place
    env: dict[str, Any]
    owner: Any = None


class Class(NamedTuple):
    place: Place


class Choice(NamedTuple):
    """One of several values."""
    values: list[Any]


# None: unknown, or a quant_config.
Value = Union[Nothing, Node, Function, Class, Choice, list, dict, str, None]


class Sources:
    """The modules of the package, by their dotted names."""

    def __init__(self, package: str) -> None:
        self.root = os.path.dirname(os.path.abspath(package))
        self.trees: dict[str, dict[str, list[Any]] | None] = {}
        self.found: dict[tuple[str, str], Place | None] = {}
        self.orders: dict[tuple[str, str], list[Place]] = {}

    def path(self, module: str) -> str | None:
        base = os.path.join(self.root, *module.split("."))
        for path in (base + ".py", os.path.join(base, "__init__.py")):
            if os.path.exists(path):
                return path
        return None

    def names(self, module: str) -> dict[str, list[Any]]:
        """What the names of a module stand for, in every branch."""
        if module not in self.trees:
            path, found = self.path(module), {}  # type: ignore[var-annotated]
            if path:
                with open(path, encoding="utf-8") as file:
                    for node in self.statements(ast.parse(file.read()).body):
                        for name in self.bound(node):
                            found.setdefault(name, []).append(node)
            self.trees[module] = found
        return self.trees[module] or {}

    def statements(self, body: list[Any]) -> Iterator[Any]:
        for node in body:
            yield node
            if isinstance(node, (ast.If, ast.Try)):
                yield from self.statements([*node.body, *node.orelse])
            elif isinstance(node, ast.FunctionDef) and node.name == "__getattr__":
                yield from self.statements(node.body)

    @staticmethod
    def bound(node: Any) -> list[str]:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            return [node.name]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return [a.asname or a.name for a in node.names]
        if isinstance(node, ast.Assign):
            return [t.id for t in node.targets if isinstance(t, ast.Name)]
        return [node.target.id] if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else []

    def absolute(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = module.split(".")
        path = self.path(module) or ""
        up = node.level - (1 if path.endswith("__init__.py") else 0)
        parts = parts[:len(parts) - up] if up else parts
        return ".".join([*parts, *([node.module] if node.module else [])])

    def find(self, module: str, name: str) -> Place | None:
        """The definition of a name; a class in preference to anything else, the first of several platforms."""
        if (module, name) not in self.found:
            self.found[module, name] = None  # until it is known
            self.found[module, name] = self.search(module, name)
        return self.found[module, name]

    def search(self, module: str, name: str) -> Place | None:
        found = []
        for node in self.names(module).get(name, ()):
            if isinstance(node, ast.ImportFrom):
                source = self.absolute(module, node)
                original = next(a.name for a in node.names if (a.asname or a.name) == name)
                found.append(self.find(source, original) if self.path(source) else None)
                if found[-1] is None and self.path(f"{source}.{original}"):
                    found[-1] = Place(f"{source}.{original}", None)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id != name:
                found.append(self.find(module, node.value.id))
            else:
                found.append(Place(module, node))
        known = [p for p in found if p is not None]
        return next((p for p in known if isinstance(p.node, (ast.ClassDef, ast.FunctionDef))), next(iter(known), None))

    def bases(self, place: Place) -> list[Place]:
        found = (self.find(place.module, b.id) for b in place.node.bases if isinstance(b, ast.Name))
        return [p for p in found if p and isinstance(p.node, ast.ClassDef)]

    def order(self, place: Place) -> list[Place]:
        """The class and its bases; near enough to Python's order."""
        key = (place.module, place.node.name)
        if key in self.orders:
            return self.orders[key]
        found: list[Place] = []
        for one in [place, *(p for b in self.bases(place) for p in self.order(b))]:
            if one in found:
                found.remove(one)
            found.append(one)
        self.orders[key] = found
        return found

    def is_linear(self, place: Place) -> bool:
        return any(p.node.name == "LinearBase" and p.module == LINEAR for p in self.order(place)) or any(
            isinstance(b, ast.Attribute) and ast.unparse(b) in ("nn.Linear", "torch.nn.Linear")
            for p in self.order(place) for b in p.node.bases)


def mark(value: Value) -> Any:
    """What of an argument decides what is built."""
    if isinstance(value, (Class, Function)):
        return value.place.module, id(value.place.node)
    if isinstance(value, (Node, Choice, list, dict)):
        return id(value)
    return value if isinstance(value, str) else type(value)


def parameters(function: ast.FunctionDef | ast.Lambda) -> tuple[list[str], dict[str, Any]]:
    """Names of the parameters, and defaults."""
    a = function.args
    names = [x.arg for x in [*a.posonlyargs, *a.args, *a.kwonlyargs]]
    defaults: dict[str, Any] = dict(zip([x.arg for x in [*a.posonlyargs, *a.args]][::-1], a.defaults[::-1]))
    defaults.update({x.arg: d for x, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None})
    return names, defaults


class Builder:
    """Builds the tree of modules of a class."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.depth = 0
        self.cache: dict[Any, Node] = {}

    # ---- classes

    def build(self, place: Place, arguments: dict[str, Value], positional: list[Value]) -> Node:
        order = self.sources.order(place)
        if self.sources.is_linear(place):
            return self.linear(place, arguments, positional)
        if self.depth > DEPTH:
            return Node()
        key = (place.module, place.node.name, frozenset((k, mark(v)) for k, v in arguments.items()),
               tuple(map(mark, positional)))
        if key in self.cache:
            return self.cache[key]
        node = self.cache[key] = Node(home=place)
        self.depth += 1
        scope: dict[str, Value] = {}
        self.method(node, scope, order, "__init__", arguments, positional)
        other = self.method(node, scope, order, "__new__", arguments, positional) if not node.children else None
        if isinstance(other, Node):              # a class that stands for several
            node.children.update(other.children)
        self.depth -= 1
        return node

    def linear(self, place: Place, arguments: dict[str, Value], positional: list[Value]) -> Node:
        bound = dict(arguments)
        for one in self.sources.order(place):
            init = next((n for n in one.node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
            if init:
                names, _ = parameters(init)
                bound.update(zip(names[1:], positional))
                break
        return Node("quant_config" in bound and not isinstance(bound["quant_config"], Nothing), place)

    def method(self, node: Node, scope: dict[str, Value], order: list[Place], name: str, arguments: dict[str, Value],
               positional: list[Value], start: int = 0) -> Value:
        """Runs a method of the class or its bases. Returns its value."""
        for i in range(start, len(order)):
            found = next((n for n in order[i].node.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
            if found:
                return self.call(Place(order[i].module, found), arguments, positional, (node, scope, order, i))
        return None

    def call(self, place: Place, arguments: dict[str, Value], positional: list[Value], owner: Any,
             env: dict[str, Value] | None = None) -> Value:
        """Runs a function. Returns its value."""
        if self.depth > DEPTH:
            return None
        names, defaults = parameters(place.node)
        static = isinstance(place.node, ast.FunctionDef) and any(
            isinstance(d, ast.Name) and d.id == "staticmethod" for d in place.node.decorator_list)
        local: dict[str, Value] = dict(env or {})
        frame = Frame(self, place.module, local, owner)
        for parameter, default in defaults.items():
            local[parameter] = frame.value(default)
        local.update(zip(names[1:] if owner and not static and env is None else names, positional))
        local.update({k: v for k, v in arguments.items() if k in names or place.node.args.kwarg})
        if place.node.args.kwarg:
            local[place.node.args.kwarg.arg] = {k: v for k, v in arguments.items() if k not in names}
        self.depth += 1
        if isinstance(place.node, ast.Lambda):
            result = frame.value(place.node.body)
        else:
            frame.run(place.node.body)
            result = frame.result
        self.depth -= 1
        return result


class Frame:
    """One call: local names, and the module that `self` is."""

    def __init__(self, builder: Builder, module: str, local: dict[str, Value], owner: Any) -> None:
        self.builder, self.sources, self.module, self.local, self.owner = (
            builder, builder.sources, module, local, owner)
        self.result: Value = None
        self.ended = False  # it has returned

    # ---- statements

    def run(self, body: list[Any]) -> None:
        for node in body:
            if not self.ended:
                self.statement(node)

    def statement(self, node: Any) -> None:
        if isinstance(node, ast.Assign):
            value = self.value(node.value)
            for target in node.targets:
                self.assign(target, value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign(node.target, self.value(node.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            old, new = self.local.get(node.target.id), self.value(node.value)
            if isinstance(old, list) and isinstance(new, list):
                old.extend(new)
        elif isinstance(node, ast.Expr):
            self.value(node.value)
        elif isinstance(node, ast.Return) and node.value is not None:
            value = self.value(node.value)
            if isinstance(value, Node) and isinstance(self.result, Node):
                self.result = self.result.merged(value)
            elif self.result is None or isinstance(self.result, Nothing):
                self.result = value
        elif isinstance(node, ast.If):
            self.branches(node)
        elif isinstance(node, (ast.For, ast.While, ast.With)):
            self.run(node.body)
        elif isinstance(node, ast.Try):
            self.run([*node.body, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.FunctionDef):
            self.local[node.name] = Function(Place(self.module, node), self.local, self.owner)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                place = self.sources.find(self.sources.absolute(self.module, node), alias.name)
                if place and isinstance(place.node, (ast.ClassDef, ast.FunctionDef)):
                    self.local[alias.asname or alias.name] = self.known(place)

    def branches(self, node: ast.If) -> None:
        test = ast.unparse(node.test)
        if THIS_METHOD.search(test):
            before = self.result
            self.run(node.body)
            if self.result is not before:           # the rest is for other methods
                self.ended = True
            return
        if OTHER_METHODS.search(test):
            self.run(node.orelse)
            return
        if re.fullmatch(r"(self\.)?quant_config is None", test):
            self.run(node.orelse)
            return
        before = dict(self.local)
        self.run(node.body)
        first = dict(self.local)
        self.local.clear()
        self.local.update(before)
        self.run(node.orelse)
        for name, value in first.items():       # a quant_config that one branch drops is dropped
            old = self.local.get(name)
            if name not in self.local or (isinstance(value, Nothing) and old is None) or isinstance(value, Node):
                self.local[name] = old.merged(value) if isinstance(old, Node) and isinstance(value, Node) else value
            elif isinstance(old, Nothing) and value is not None:
                self.local[name] = value
            elif isinstance(old, (list,)) and isinstance(value, list):
                old.extend(v for v in value if v not in old)

    def assign(self, target: Any, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.local[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = value if isinstance(value, list) and len(value) == len(target.elts) else [None] * len(target.elts)
            for one, part in zip(target.elts, values):
                self.assign(one, part)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            self.attribute(target.attr, value)
        elif isinstance(target, ast.Subscript) and isinstance(value, Node):
            holder = self.value(target.value)
            if isinstance(holder, Node):
                holder.add(self.key(target.slice), value)

    def attribute(self, name: str, value: Value) -> None:
        if not self.owner:
            return
        node, scope = self.owner[:2]
        if isinstance(value, list) and value and all(isinstance(v, Node) for v in value):
            scope[name] = value
            return
        if isinstance(value, Node):
            node.add(name, value)
        old = scope.get(name)
        scope[name] = old if isinstance(old, Nothing) and value is None else value

    @staticmethod
    def key(node: Any) -> str:
        return str(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, (str, int)) else "*"

    # ---- expressions

    def known(self, place: Place) -> Value:
        if isinstance(place.node, ast.ClassDef):
            return Class(place)
        if isinstance(place.node, ast.FunctionDef):
            return Function(place, {}, None)
        return None

    def value(self, node: Any) -> Value:
        if isinstance(node, ast.Constant):
            return NONE if node.value is None else node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            if node.id in self.local:
                return self.local[node.id]
            place = self.sources.find(self.module, node.id)
            if place and isinstance(place.node, (ast.Assign, ast.AnnAssign)) and isinstance(place.node.value, ast.Dict):
                return Frame(self.builder, place.module, {}, None).value(place.node.value)
            return self.known(place) if place else None
        if isinstance(node, ast.Attribute):
            return self.member(node)
        if isinstance(node, ast.IfExp):
            return self.choice(node)
        if isinstance(node, ast.BoolOp):
            values = [self.value(v) for v in node.values]
            return next((v for v in values if v is not None and not isinstance(v, (Nothing, str))), None)
        if isinstance(node, (ast.List, ast.Tuple)):
            return self.items(node.elts)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return [self.value(node.elt), "*"]
        if isinstance(node, ast.DictComp):
            return {"*": self.value(node.value)}
        if isinstance(node, ast.Dict):
            return {self.key(k): self.value(v) for k, v in zip(node.keys, node.values)}
        if isinstance(node, ast.Lambda):
            return Function(Place(self.module, node), self.local, self.owner)
        if isinstance(node, ast.Subscript):
            holder = self.value(node.value)
            if isinstance(holder, dict):
                known = holder.get(node.slice.value) if isinstance(node.slice, ast.Constant) else None
                return known or Choice(list(holder.values()))
            return holder if isinstance(holder, Node) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
            left, right = self.value(node.left), self.value(node.right)
            many = [v for v in (left, right) if isinstance(v, list)]
            return [x for v in many for x in v] + (["*"] if many else []) if many else None
        if isinstance(node, ast.NamedExpr):
            self.assign(node.target, self.value(node.value))
            return self.value(node.target)
        return self.call(node) if isinstance(node, ast.Call) else None

    def items(self, nodes: list[Any]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            value = self.value(node.value if isinstance(node, ast.Starred) else node)
            if isinstance(node, ast.Starred) and isinstance(value, list):
                found.extend(value)
            else:
                found.append(value)
        return found

    def choice(self, node: ast.IfExp) -> Value:
        test = ast.unparse(node.test)
        a, b = self.value(node.body), self.value(node.orelse)
        if THIS_METHOD.search(test):
            return a
        if OTHER_METHODS.search(test) or "quant_config is" in test:
            return next((v for v in (a, b) if not isinstance(v, Nothing)), None)
        if isinstance(a, Node) and isinstance(b, Node):
            return a.merged(b)
        for v in (a, b):
            if isinstance(v, (Node, Class, Function, Choice)):
                return v
        return NONE if isinstance(a, Nothing) or isinstance(b, Nothing) else a

    def member(self, node: ast.Attribute) -> Value:
        if isinstance(node.value, ast.Name) and node.value.id == "self" and self.owner:
            tree, scope, order, _ = self.owner
            if node.attr in scope:
                return scope[node.attr]
            if node.attr in tree.children:
                return tree.children[node.attr]
            for place in order:
                for one in place.node.body:
                    if isinstance(one, ast.FunctionDef) and one.name == node.attr:
                        return Function(Place(place.module, one), {}, self.owner)
                    if node.attr == "quant_config":      # SupportsQuant sets it before __init__
                        continue
                    if node.attr in Sources.bound(one) and isinstance(one, (ast.Assign, ast.AnnAssign)) and one.value:
                        return Frame(self.builder, place.module, {}, None).value(one.value)
            return None
        holder = self.value(node.value)
        if isinstance(holder, Node):
            return holder.children.get(node.attr)
        return None

    # ---- calls

    def is_foreign(self, node: Any) -> bool:
        """Whether this is a module's class of transformers."""
        if not isinstance(node, ast.Name) or not re.search("(Model|Encoder|Decoder|Layer|Attention)$", node.id):
            return False
        return any(isinstance(n, ast.ImportFrom) and (n.module or "").startswith("transformers")
                   for n in self.sources.names(self.module).get(node.id, ()))

    def arguments(self, node: ast.Call) -> tuple[dict[str, Value], list[Value]]:
        named: dict[str, Value] = {}
        for k in node.keywords:
            if k.arg:
                named[k.arg] = self.value(k.value)
            else:
                more = self.value(k.value)
                named.update(more if isinstance(more, dict) else {})
        return named, self.items(node.args)

    def call(self, node: ast.Call) -> Value:
        text = ast.unparse(node.func)
        last = text.rpartition(".")[2]
        if text.startswith("super()"):
            named, positional = self.arguments(node)
            if self.owner and last == "__init__":
                tree, scope, order, i = self.owner
                return self.builder.method(tree, scope, order, last, named, positional, i + 1)
            return None
        if text in ("nn.Linear", "torch.nn.Linear") or FOREIGN.fullmatch(text) or self.is_foreign(node.func):
            return Node(False, Place(self.module, node))
        if last in ("Sequential", "ModuleList", "ModuleDict") and text.startswith(("nn.", "torch.nn.", "Sequential",
                                                                                  "ModuleList", "ModuleDict")):
            return self.container(node)
        if last in ("append", "extend", "insert", "add_module", "register_module", "setattr"):
            return self.grow(node, last)
        if last == "make_layers":
            named, positional = self.arguments(node)
            function = named.get("layer_fn", positional[1] if len(positional) > 1 else None)
            return [None, None, self.several(self.apply(function, {}, []))]
        if last == "maybe_offload_to_cpu" or last in ("to", "cast") or text == "cast":
            method: Any = node.func
            return self.value(node.args[-1] if last == "cast" and node.args else method.value) if (
                last in ("to",) or node.args) else None
        if last == "partial":
            named, positional = self.arguments(node)
            if positional and isinstance(positional[0], (Class, Function)):
                return {"partial": positional[0], "named": named, "positional": positional[1:]}
            return None
        if last == "get" and isinstance(node.func, ast.Attribute):
            holder = self.value(node.func.value)
            return Choice(list(holder.values())) if isinstance(holder, dict) else None
        function = self.value(node.func)
        named, positional = self.arguments(node)
        return self.apply(function, named, positional, last)

    def apply(self, function: Value, named: dict[str, Value], positional: list[Value], name: str = "") -> Value:
        if isinstance(function, dict) and "partial" in function:
            return self.apply(function["partial"], {**function["named"], **named},
                              [*function["positional"], *positional], name)
        if isinstance(function, Choice):
            results = [self.apply(f, named, positional, name) for f in function.values]
            nodes = [n for n in results if isinstance(n, Node)]
            return functools.reduce(Node.merged, nodes) if nodes else None
        if isinstance(function, Class):
            return self.builder.build(function.place, named, positional)
        if isinstance(function, Function):
            inside = isinstance(function.place.node, ast.Lambda) or function.env
            if not inside and function.owner is None and "quant_config" in name:
                return None
            return self.builder.call(function.place, named, positional, function.owner,
                                     function.env if inside else None)
        return None

    @staticmethod
    def several(value: Value) -> Node:
        node = Node()
        if isinstance(value, Node):
            node.add("*", value)
        return node

    def container(self, node: ast.Call) -> Node:
        found = Node(home=Place(self.module, node))
        items = self.items(node.args)
        if len(items) == 1 and isinstance(items[0], dict):
            for name, value in items[0].items():
                if isinstance(value, Node):
                    found.add(name, value)
            return found
        if len(items) == 1 and isinstance(items[0], list):
            items = items[0]
        star = "*" in items or any(isinstance(n, ast.Starred) for n in node.args)
        for i, value in enumerate(v for v in items if not isinstance(v, str)):
            if isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):    # of an OrderedDict
                value, name = value[1], value[0]
            else:
                name = "*" if star else str(i)
            if isinstance(value, Node):
                found.add(name, value)
        return found

    def grow(self, node: ast.Call, how: str) -> Value:
        named, positional = self.arguments(node)
        holder = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else None
        value = positional[-1] if positional else None
        if isinstance(holder, Node) and isinstance(value, Node):
            holder.add(self.key(node.args[0]) if how == "add_module" else "*", value)
        elif isinstance(holder, list) and how in ("append", "insert"):
            holder += [value] + ([] if "*" in holder else ["*"])
        elif isinstance(holder, list) and isinstance(value, list):
            holder += value
        elif isinstance(value, Node) and how in ("add_module", "register_module", "setattr") and self.owner:
            names = [a for a in node.args if not (isinstance(a, ast.Name) and a.id == "self")]
            self.owner[0].add(self.key(names[0]), value)
        return None


# ---- Names in the files ----------------------------------------------------------------------------------------------


def literal(node: Any) -> Any:
    """The constants of an expression; others become None."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple)):
        return [literal(n) for n in node.elts]
    if isinstance(node, ast.Dict):
        return {k.value: literal(v) for k, v in zip(node.keys, node.values) if isinstance(k, ast.Constant)}
    return None


class Names:
    """How a class calls the tensors of the files: pairs (name in the file, module's), and parts of fused modules."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self.lists: dict[str, list[tuple[str, str]]] = {}

    def mappers(self, order: list[Place]) -> list[tuple[str, str, str]]:
        """(kind, name in the file, module's name) of WeightsMapper; the first class that has one."""
        for place in order:
            found = []
            for node in place.node.body:
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and "hf_to_vllm_mapper" in Sources.bound(node):
                    calls = [c for c in ast.walk(node) if isinstance(c, ast.Call)
                             and ast.unparse(c.func).endswith("WeightsMapper")]
                    for k in (k for c in calls for k in c.keywords if k.arg):
                        pairs = literal(k.value)
                        if isinstance(pairs, dict):
                            found += [(str(k.arg).rpartition("_")[2], str(a), b) for a, b in pairs.items()
                                      if isinstance(a, str) and isinstance(b, str)]
            if found:
                return found
        return []

    def packed(self, modules: set[str]) -> dict[str, set[str]]:
        """Fused names and their parts, of the lists in these modules."""
        found: dict[str, set[str]] = {}
        for module in modules:
            if module not in self.lists:
                self.lists[module] = list(self.pairs(module))
            for fused, one in self.lists[module]:
                found.setdefault(fused, set()).add(one)
        return found

    def pairs(self, module: str) -> Iterator[tuple[str, str]]:
        path = self.sources.path(module)
        if not path:
            return
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, (ast.Dict, ast.List)):
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            name = next((t.id for t in targets if isinstance(t, ast.Name)), "")
            value = literal(node.value)
            if name == "packed_modules_mapping" and isinstance(value, dict):
                yield from ((str(a), x) for a, b in value.items() for x in b or () if isinstance(x, str))
            elif re.search("stacked|params_mapping", name) and isinstance(value, list):
                for item in value:
                    if isinstance(item, list) and len(item) >= 2 and all(isinstance(x, str) for x in item[:2]):
                        yield item[0].strip("."), item[1].strip(".")


def before_mapping(name: str, pairs: list[tuple[str, str, str]]) -> list[str]:
    """Names in the file that a mapper turns into this module's name, and the name itself."""
    found = [name]
    for kind, old, new in pairs:
        for one in list(found):
            text = one + "."
            if kind == "prefix" and new and text.startswith(new if new.endswith(".") else new):
                found.append((old + text[len(new):]).strip("."))
            elif kind == "prefix" and not new and old.endswith("."):
                found.append(old + one)
            elif kind in ("substr", "suffix") and new and new in text and old:
                found.append(text.replace(new, old).strip("."))
    return list(dict.fromkeys(found))


# Modules that no file has: aliases of others inside vLLM.
INSIDE = {"expert_gate", "_shared_experts", "_layer"}


def registry(package: str) -> dict[str, tuple[str, str]]:
    """Architectures and their (module, class)."""
    with open(os.path.join(package, "model_executor", "models", "registry.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values):
                pair = literal(value)
                if isinstance(key, ast.Constant) and isinstance(pair, list) and len(pair) >= 2:
                    module = pair[0] if "." in pair[0] else f"vllm.model_executor.models.{pair[0]}"
                    found[str(key.value)] = (module, pair[1])
    return found


def architectures(package: str, wanted: Collection[str] | None = None) -> dict[str, dict[str, list[str]]]:
    """{architecture: {"unquantized": [names], "quantized": [names]}} of those that are wanted, in small letters without
    _; None: of the registry. The names are those of modules in the files; `*` stands for a number."""
    sources = Sources(package)
    names, builder, found = Names(sources), Builder(sources), {}
    for architecture, (module, class_name) in sorted(registry(package).items()):
        if wanted is not None and architecture.replace("_", "").lower() not in wanted:
            continue
        place = sources.find(module, class_name)
        if not place or not isinstance(place.node, ast.ClassDef):
            found[architecture] = {"missing": [f"{module}.{class_name}"]}
            continue
        tree = builder.build(place, {}, [])
        order = sources.order(place)
        pairs = names.mappers(order)
        homes = {p.module for p in order}
        collect_homes(tree, homes)
        packed = names.packed(homes)
        row: dict[str, list[str]] = {"unquantized": [], "quantized": []}
        for path, quantized in tree.leaves():
            if INSIDE & set(path):
                continue
            parts = packed.get(path[-1], ()) if path else ()
            for last in [path[-1], *sorted(parts)]:
                for name in before_mapping(".".join([*path[:-1], last]), pairs):
                    row["quantized" if quantized else "unquantized"].append(name)
        found[architecture] = {k: sorted(set(v)) for k, v in row.items()}
    return found


def collect_homes(node: Node, homes: set[str]) -> None:
    if node.home:
        homes.add(node.home.module)
    for child in node.children.values():
        collect_homes(child, homes)


# ---- Entries of vllm_keeps -------------------------------------------------------------------------------------------

# Components that say nothing: a list needs another one beside them.
COMMON = set("model language_model backbone transformer thinker vlm base_model layers blocks layer h encoder decoder "
             "self_attn attn attention mlp ffn feed_forward bert roberta * 0 1 2 3 4 linear proj dense".split())
# The general rule leaves these in any model, or they are no matrices.
STAY = re.compile(r"(^|[.])(gate|wg|router|classifier|shared_expert_gate|eh_proj|lm_head|score)$|"
                  r"(^|[.])(gate|router)[.]|indexer[.](wk|weights_proj)$|conv1d$|embed[^.]*([.][^.]*)?$")


def has_run(name: str, run: str) -> bool:
    """Whether the components of `run` stand in the name, at its beginning after a `^`."""
    parts, wanted = name.split("."), run.removeprefix("^").split(".")
    starts = range(1 if run.startswith("^") else len(parts) - len(wanted) + 1)
    return any(parts[i:i + len(wanted)] == wanted for i in starts)


def runs(name: str, common: Collection[str] = ()) -> Iterator[str]:
    """Runs of components that stand for a module or what it is in, of more than common ones: the shortest first, from
    the root."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        for start in range(len(parts) - length + 1):
            run = parts[start:start + length]
            if "*" not in run and not set(run) <= set(common):
                yield ".".join(run)
    for length in range(1, len(parts) + 1):
        if "*" not in parts[:length]:
            yield "^" + ".".join(parts[:length])
    yield name


def keeps(unquantized: list[str], quantized: list[str]) -> list[str]:
    """Runs of components that every unquantized module has, and no quantized one. Others stay."""
    found: dict[str, None] = {}
    quantized = sorted(set(quantized) - set(unquantized))
    for name in unquantized:
        if STAY.search(name) or any(has_run(name, run) for run in found):
            continue
        run = next((r for r in runs(name, COMMON) if not any(has_run(q, r) for q in quantized)), None)
        if run:
            found[run] = None
    return sorted(found)
