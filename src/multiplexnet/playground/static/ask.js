// Questions to the server.

export class Refusal extends Error {
  constructor(error) {
    super(error.message);
    this.error = error;
  }
}

let asking = 0;

// Tells assistive technology (and tests) whether answers are still to come.
function busy(change) {
  asking += change;
  document.querySelector("main").setAttribute("aria-busy", String(asking > 0));
}

export async function ask(question, fields, signal) {
  busy(1);
  try {
    return await answered(question, fields, signal);
  } finally {
    setTimeout(() => busy(-1)); // once the answer is on the page, which may ask the next question
  }
}

async function answered(question, fields, signal) {
  let response;
  try {
    response = await fetch(`/ask/${question}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(fields),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal({ kind: "gone", message: "the playground's server does not answer: start it again" });
  }
  const told = await response.json();
  if (told.error) throw new Refusal(told.error);
  return told.answer;
}

// Asks the same kind of question again and again, one at a time: of those that come meanwhile only the latest counts.
export class Latest {
  constructor(question, use, refuse) {
    Object.assign(this, { question, use, refuse, running: false, next: null });
  }

  ask(fields) {
    this.next = fields;
    if (!this.running) this.#run();
  }

  forget() {
    this.next = null;
    this.dropped = this.current;
  }

  async #run() {
    this.running = true;
    while (this.next !== null) {
      this.current = this.next;
      this.next = null;
      try {
        const answer = await ask(this.question, this.current);
        if (this.dropped !== this.current) this.use(answer, this.current);
      } catch (error) {
        if (this.dropped !== this.current) this.refuse(error);
      }
    }
    this.running = false;
  }
}
