/** Content types. */

import { CONTENT_TYPE_LEN_MAX } from "./limits.js";

const ESSENCE = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+\/[!#$%&'*+.^_`|~0-9A-Za-z-]+ *$/;

/** Whether a text is a media type: its type and subtype by the letter, of its parameters that they break no header. */
export function isContentType(text: string): boolean {
  const at = text.indexOf(";");
  const [essence, parameters] = at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
  return ESSENCE.test(essence) && /^[ -~]*$/.test(parameters) && text.length <= CONTENT_TYPE_LEN_MAX;
}

/** The type and subtype, in lower case. */
export function essenceOf(contentType: string): string {
  return (contentType.split(";")[0] ?? "").trim().toLowerCase();
}

/** Whether it declares JSON. */
export function isJsonType(contentType: string): boolean {
  const subtype = essenceOf(contentType).split("/").slice(1).join("/");
  return subtype === "json" || subtype.endsWith("+json");
}
