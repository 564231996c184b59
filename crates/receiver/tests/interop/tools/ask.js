// Answers questions with npm's standardwebhooks: JSON in, JSON out.
const fs = require("node:fs");
const { Webhook } = require("standardwebhooks");

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
};

const questions = JSON.parse(fs.readFileSync(0));
process.stdout.write(JSON.stringify(questions.map((question) => QUESTIONS[question.ask](question))));
