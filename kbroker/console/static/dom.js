// Elements from values.  Text becomes text nodes alone, so nothing that comes from a record or a name is ever markup.

const LISTENERS = Symbol("listeners");

function dispatch(event) {
  event.currentTarget[LISTENERS]?.[event.type]?.(event);
}

function listen(node, listeners) {
  const before = node[LISTENERS] ?? {};
  for (const type of Object.keys(listeners)) if (!(type in before)) node.addEventListener(type, dispatch);
  node[LISTENERS] = { ...Object.fromEntries(Object.keys(before).map((type) => [type, undefined])), ...listeners };
}

export function h(tag, properties, ...children) {
  const node = document.createElement(tag);
  const listeners = {};
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) listeners[name.slice(2)] = value;
    else if (name === "value") node.value = value;
    else if (name === "width%") node.style.width = `${value}%`;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  if (Object.keys(listeners).length) listen(node, listeners);
  append(node, children);
  if (tag === "select" && properties?.value !== undefined) node.value = properties.value;
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// Makes the children of `parent` those of a new drawing, and leaves in place what has not changed: focus, selection, the
// place in a scrolled table and what a person is typing outlive the next look at the broker.
export function draw(parent, ...children) {
  const next = document.createElement("div");
  append(next, children);
  match(parent, next);
}

function match(old, next) {
  const wanted = [...next.childNodes];
  wanted.forEach((node, index) => {
    const known = old.childNodes[index];
    if (!known) old.append(node);
    else if (!alike(known, node)) known.replaceWith(node);
    else if (node.nodeType === Node.TEXT_NODE) {
      if (known.data !== node.data) known.data = node.data;
    } else if (!node.dataset.keep) update(known, node);
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function alike(one, other) {
  return one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key;
}

function update(known, node) {
  for (const { name } of [...known.attributes]) {
    // A dialog or details that a person has opened stays open.
    if (!node.hasAttribute(name) && name !== "open") known.removeAttribute(name);
  }
  for (const { name, value } of node.attributes) if (known.getAttribute(name) !== value) known.setAttribute(name, value);
  if (node[LISTENERS] || known[LISTENERS]) listen(known, node[LISTENERS] ?? {});
  match(known, node);
  if (known.nodeName === "INPUT" || known.nodeName === "SELECT") {
    if (known !== document.activeElement && known.value !== node.value) known.value = node.value;
    if (known.type === "checkbox") known.checked = node.checked;
  }
}
