// Answers questions with npm's standardwebhooks and stripe: JSON in, JSON out.
const fs = require("node:fs");
const { Webhook } = require("standardwebhooks");
const Stripe = require("stripe");
const { verifyWebhook } = require("./plain_verifier.js");

const QUESTIONS = {
  verify({ secret, headers, body }) {
    try {
      const bytes = Buffer.from(body, "base64");
      new Webhook(secret).verify(bytes, headers, { jsonParse: false });
      return "accepted";
    } catch (refusal) {
      return `refused: ${refusal.message}`;
    }
  },
  sign({ secret, id, timestamp, body }) {
    const text = Buffer.from(body, "base64").toString();
    return new Webhook(secret).sign(id, new Date(timestamp * 1000), text);
  },
  verify_timestamped({ secret, headers, body }) {
    try {
      const bytes = Buffer.from(body, "base64");
      const header = headers["x-webhook-signature"];
      Stripe.webhooks.signature.verifyHeader(bytes, header, secret, 300);
      return "accepted";
    } catch (refusal) {
      return `refused: ${refusal.message}`;
    }
  },
  sign_timestamped({ secret, timestamp, body }) {
    const payload = Buffer.from(body, "base64").toString();
    return Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp });
  },
  verify_plainly({ secret, headers, body }) {
    try {
      const text = Buffer.from(body, "base64").toString();
      const accepted = verifyWebhook(text, headers["x-webhook-signature"], secret);
      return accepted ? "accepted" : "refused";
    } catch (refusal) {
      return `refused: ${refusal.message}`;
    }
  },
};

const questions = JSON.parse(fs.readFileSync(0));
process.stdout.write(JSON.stringify(questions.map((question) => QUESTIONS[question.ask](question))));
