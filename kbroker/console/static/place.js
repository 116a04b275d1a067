// Where a viewer is: `#/page?field=value`, so that every view has an address.

export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: path || "overview", fields: new URLSearchParams(query ?? "") };
}

export function to(name, fields = {}) {
  const query = new URLSearchParams(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return `#/${name}${query.size ? `?${query}` : ""}`;
}

// Another view of the same page; null takes a field away.  `quietly`: "back" does not lead to the view before.
export function change(fields, quietly = false) {
  const here = place();
  const address = to(here.name, { ...Object.fromEntries(here.fields), ...fields });
  if (quietly) {
    history.replaceState(null, "", address);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else {
    location.hash = address;
  }
}
