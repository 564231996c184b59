/** A receiver on Cloudflare's workerd. The inbox is in memory: it is about the handler. */

import { fetchHandler } from "./railpost/fetch.js";
import { MemoryInbox, Receiver, webhook } from "./railpost/index.js";

const effects = [];
const inbox = new MemoryInbox({ policy: { start: "at_one" } });
let handler;

export default {
  async fetch(request, env) {
    handler ??= fetchHandler(
      webhook(
        { receiver: new Receiver({ secrets: [env.SECRET], keys: [env.PUBLIC_KEY] }), inbox, log: () => undefined },
        (delivery) => {
          effects.push({ text: delivery.text() });
        },
      ),
    );
    return request.method === "GET" ? Response.json(effects) : handler(request);
  },
};
