/** JSON read one level deep: members in their order, duplicates and all, values as they were written. */

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text of a JSON body, or nothing if it is not JSON in UTF-8. */
export function jsonText(body: Uint8Array): string | undefined {
  try {
    const text = UTF8.decode(body);
    JSON.parse(text);
    return text;
  } catch {
    return undefined;
  }
}

/** The members of an object, from valid JSON; nothing if it is no object. */
export function members(text: string): [name: string, value: string][] | undefined {
  const items = itemsOf(text, "{");
  return items?.map((item) => {
    const [name = ""] = /^"[^"\\]*(?:\\.[^"\\]*)*"/.exec(item) ?? [];
    const value = item.slice(name.length).trimStart().slice(1);
    return [JSON.parse(name) as string, value.trim()];
  });
}

/** The elements of an array, from valid JSON; nothing if it is no array. */
export function elements(text: string): string[] | undefined {
  return itemsOf(text, "[");
}

/** What stands between the commas of the outermost level. */
function itemsOf(text: string, opening: "{" | "["): string[] | undefined {
  const whole = text.trim();
  if (!whole.startsWith(opening)) return undefined;
  const inside = whole.slice(1, -1);
  const items: string[] = [];
  let [depth, begin] = [0, 0];
  for (const match of inside.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},]/g)) {
    const [token] = match;
    if (token === "[" || token === "{") depth += 1;
    if (token === "]" || token === "}") depth -= 1;
    if (token !== "," || depth > 0) continue;
    items.push(inside.slice(begin, match.index).trim());
    begin = match.index + 1;
  }
  const last = inside.slice(begin).trim();
  return last === "" ? items : [...items, last];
}
