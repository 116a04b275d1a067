"""Folded stacks as one self-contained SVG: width is time, hovering shows the share, a click widens a frame."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from profiling.stacks import Stacks

WIDTH = 1400.0
ROW = 17
MIN_PIXELS = 0.3

_SCRIPT = """
function zoom(g){var x=+g.dataset.x,w=+g.dataset.w,d=+g.dataset.d,W=WIDTH;
document.querySelectorAll('g.f').forEach(function(e){
var p=e.dataset,l=(+p.x-x)/w,r=(+p.x + +p.w-x)/w,hide=r<=1e-9||l>=1-1e-9;
if(+p.d<=d){l=Math.max(l,0);r=Math.min(r,1)}
e.style.display=hide?'none':'';if(hide)return;
var box=e.querySelector('rect'),t=e.querySelector('text'),n=Math.floor(((r-l)*W-6)/6.6);
box.setAttribute('x',l*W);box.setAttribute('width',(r-l)*W);t.setAttribute('x',l*W+3);
t.textContent=n<3?'':p.n.length>n?p.n.slice(0,n-1)+'…':p.n})}
"""


@dataclass(slots=True)
class Node:
    """A frame below its callers."""

    name: str
    count: int = 0
    children: dict[str, Node] = field(default_factory=dict)


def tree(stacks: Stacks) -> Node:
    """All stacks merged from the root."""
    root = Node("all")
    for stack, count in stacks.items():
        node = root
        node.count += count
        for name in stack:
            node = node.children.setdefault(name, Node(name))
            node.count += count
    return root


def _colour(name: str) -> str:
    if name.startswith("cython:"):
        hue = 130  # our own compiled code
    elif name.endswith("_[k]"):
        hue = 210  # the kernel
    elif name.startswith("libpython:"):
        hue = 45  # the interpreter
    elif name.startswith("uvloop:"):
        hue = 280
    elif ".py:" in name:
        hue = 90  # Python code, as py-spy names it
    else:
        hue = 20
    return f"hsl({hue},65%,{68 + zlib.crc32(name.encode()) % 14}%)"


def _frames(node: Node, left: int, depth: int, total: int) -> Iterator[tuple[Node, float, float, int]]:
    share = node.count / total
    if share * WIDTH < MIN_PIXELS:
        return
    yield node, left / total, share, depth
    for name in sorted(node.children):
        child = node.children[name]
        yield from _frames(child, left, depth + 1, total)
        left += child.count


def render(stacks: Stacks, title: str) -> str:
    """The SVG's text."""
    root = tree(stacks)
    total = root.count or 1
    frames = list(_frames(root, 0, 0, total))
    height = (max(depth for *_, depth in frames) + 3) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height}" font-family="monospace" '
        f'font-size="11"><script>{html.escape(_SCRIPT.replace("WIDTH", str(WIDTH)), quote=False)}</script>',
        f'<rect width="100%" height="100%" fill="#fff"/><text x="8" y="14" font-size="13">{html.escape(title)}</text>',
    ]
    for node, x, width, depth in frames:
        y = height - (depth + 1) * ROW
        room = int((width * WIDTH - 6) / 6.6)
        label = "" if room < 3 else node.name if len(node.name) <= room else node.name[: room - 1] + "…"
        name = html.escape(node.name)
        parts.append(
            f'<g class="f" data-x="{x:.7f}" data-w="{width:.7f}" data-d="{depth}" data-n="{name}" onclick="zoom(this)">'
            f"<title>{name}: {node.count} samples, {node.count / total:.2%}</title>"
            f'<rect x="{x * WIDTH:.2f}" y="{y}" width="{width * WIDTH:.2f}" height="{ROW - 1}" '
            f'fill="{_colour(node.name)}"/>'
            f'<text x="{x * WIDTH + 3:.2f}" y="{y + 12}">{html.escape(label)}</text></g>'
        )
    parts.append("</svg>\n")
    return "\n".join(parts)
