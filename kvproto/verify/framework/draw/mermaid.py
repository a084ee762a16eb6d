"""A sketch as a Mermaid flowchart.

A flowchart and not a state diagram, because only a flowchart's edges can be styled one by one, and the way that goes
well has to stand out.  The colours are mid tones on both a white and a dark page; boxes carry their own text colour.
"""

from __future__ import annotations

from kvproto.verify.framework.draw.diagram import DiagramBox, DiagramSketch, Edge

STYLE = {
    "well": "stroke:#2da44e,stroke-width:3px",
    "detour": "stroke:#768390,stroke-width:1.5px",
    "apart": "stroke:#d1545b,stroke-width:1.5px,stroke-dasharray:5 4",
}
CLASSES = {
    "well": "fill:#1f7a3d,stroke:#2da44e,color:#ffffff",
    "detour": "fill:#57606a,stroke:#768390,color:#ffffff",
    "apart": "fill:#9a3a40,stroke:#d1545b,color:#ffffff",
    "many": "fill:transparent,stroke:#768390,stroke-dasharray:3 3",
}


def mermaid(picture: DiagramSketch) -> str:
    ids = {node.name: node.name if not node.many else f"from{i}" for i, node in enumerate(picture.nodes)}
    lines = ["flowchart TD"]
    lines += [f"    {ids[node.name]}{_box(node)}:::{'many' if node.many else node.kind}" for node in picture.nodes]
    lines += [f'    {ids[edge.source]} -->|"{_label(edge)}"| {ids[edge.target]}' for edge in picture.edges]
    for name in ("well", "detour", "apart"):
        which = [str(i) for i, edge in enumerate(picture.edges) if edge.kind == name]
        if which:
            lines.append(f"    linkStyle {','.join(which)} {STYLE[name]}")
    lines += [f"    classDef {name} {css}" for name, css in CLASSES.items()]
    return "\n".join(lines) + "\n"


def _box(node: DiagramBox) -> str:
    if node.many:
        return '["' + "<br/>".join(node.many) + '"]'
    text = node.name + (f"<br/><small>timer: {node.timer}</small>" if node.timer else "")
    if node.first or node.last:
        return f'(["{text}"])'
    return f'("{text}")'


def _label(edge: Edge) -> str:
    text = "<br/>".join(edge.narrow)
    return text.replace('"', "#quot;").replace("[", "#91;").replace("]", "#93;")
