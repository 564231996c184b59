/** Why a request is not believed, for the receiver's log. The sender is told less. */

export type RejectionCode =
  | "unsigned"
  | "missing_header"
  | "malformed"
  | "stale"
  | "future"
  | "no_match"
  | "unreadable"
  | "too_large"
  | "interrupted";

export interface RejectionDetails {
  /** The header that is missing or malformed. */
  header?: string;
  /** Seconds beyond the tolerance. */
  by?: number;
  /** Of a body that is no CloudEvent: the attribute, and in a batch which event, from 0. */
  attribute?: string;
  index?: number;
}

/** A request was refused. `code` is stable; the message is for people. */
export class Rejection extends Error {
  override name = "Rejection";
  readonly header: string | undefined;
  readonly by: number | undefined;
  readonly attribute: string | undefined;
  readonly index: number | undefined;

  constructor(
    readonly code: RejectionCode,
    message: string,
    details: RejectionDetails = {},
  ) {
    super(message);
    this.header = details.header;
    this.by = details.by;
    this.attribute = details.attribute;
    this.index = details.index;
  }

  static unsigned(header: string): Rejection {
    const message = `no \`${header}\` header: the request is unsigned, or a proxy took it away`;
    return new Rejection("unsigned", message, { header });
  }

  static missing(header: string): Rejection {
    return new Rejection("missing_header", `expected a header \`${header}\`; got none`, { header });
  }

  static malformed(header: string, problem: string): Rejection {
    return new Rejection("malformed", `header \`${header}\`: ${problem}`, { header });
  }

  static outOfTime(code: "stale" | "future", by: number): Rejection {
    const where = code === "stale" ? "too old" : "too far ahead";
    const cause = "an old request sent again, or one of the clocks is wrong";
    return new Rejection(code, `the timestamp is ${where} by ${by} s: ${cause}`, { by });
  }

  static noMatch(): Rejection {
    return new Rejection(
      "no_match",
      "no signature matches a trusted secret or key: check that the secret is this endpoint's, " +
        "and that the body reaches the verifier byte for byte",
    );
  }

  static unreadable(problem: string, details: RejectionDetails = {}): Rejection {
    return new Rejection("unreadable", problem, details);
  }

  static tooLarge(limit: number): Rejection {
    return new Rejection("too_large", `the body is longer than ${limit} bytes`);
  }

  static interrupted(): Rejection {
    return new Rejection("interrupted", "the connection ended within the body");
  }
}

/** Whether an error is a rejection, of this copy of the package or of another one (ESM beside CommonJS). */
export function isRejection(error: unknown): error is Rejection {
  return error instanceof Error && error.name === "Rejection" && "code" in error;
}
