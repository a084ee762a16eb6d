"""A sketch in Graphviz's DOT language, for people who have Graphviz and want to place or style it themselves."""

from __future__ import annotations

from kvproto.verify.framework.draw.diagram import DiagramBox, DiagramSketch
from kvproto.verify.framework.draw.mermaid import style

EDGES = {
    "well": 'color="#2da44e", penwidth=3, weight=20',
    "detour": 'color="#768390"',
    "apart": 'color="#d1545b", style=dashed',
    "bare": 'color="#d29922", penwidth=3, style=dotted',
}
NODES = {
    "well": 'fillcolor="#1f7a3d", fontcolor=white, group=well',
    "detour": 'fillcolor="#57606a", fontcolor=white',
    "apart": 'fillcolor="#9a3a40", fontcolor=white',
}


def dot(picture: DiagramSketch) -> str:
    """The digraph's text."""
    lines = [
        f"digraph {picture.table} {{",
        '    graph [bgcolor="transparent", rankdir=TB, nodesep=0.3, ranksep=0.45, fontname="sans-serif"]',
        '    node [shape=box, style="filled,rounded", color="#768390", fontname="sans-serif", fontsize=11]',
        '    edge [fontname="sans-serif", fontsize=9, fontcolor="#768390"]',
    ]
    lines += [f"    {_quote(node.name)} [{_attributes(node)}]" for node in picture.nodes]
    for edge in picture.edges:
        label = "".join(line + r"\l" for line in edge.lines)
        if edge.covered is not None:
            label += rf"{edge.covered}/{len(edge.rows)} rows\l"
        lines.append(f'    {_quote(edge.source)} -> {_quote(edge.target)} [label="{label}", {EDGES[style(edge)]}]')
    return "\n".join([*lines, "}"]) + "\n"


def _quote(name: str) -> str:
    return f'"{name}"'


def _attributes(node: DiagramBox) -> str:
    if node.many:
        return 'label="' + r"\n".join(node.many) + '", style="dashed,rounded", fontcolor="#768390"'
    label = node.name + (rf"\ntimer: {node.timer}" if node.timer else "")
    return f'label="{label}", {NODES[node.kind]}' + (", peripheries=2" if node.last else "")
