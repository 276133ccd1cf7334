// Measures LangGraph's PostgreSQL checkpointer:
//
//   node measure.mjs append|get MESSAGES COUNT
//
// It performs COUNT operations on a thread of MESSAGES messages and prints their total time in nanoseconds.
// PGHOST, PGPORT, PGUSER and PGDATABASE select the database.
import { HumanMessage } from "@langchain/core/messages";
import { MessagesAnnotation, START, StateGraph } from "@langchain/langgraph";
import { PostgresSaver } from "@langchain/langgraph-checkpoint-postgres";
import pg from "pg";

const [operation, messages, count] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4])];
const warm = 12;

const pool = new pg.Pool();
const saver = new PostgresSaver(pool);
await saver.setup();
const graph = new StateGraph(MessagesAnnotation)
  .addNode("chat", () => ({}))
  .addEdge(START, "chat")
  .compile({ checkpointer: saver });

const thread = { configurable: { thread_id: `${operation} ${messages}` } };
const text = "What the user says takes some room. ".repeat(8).slice(0, 280);
let made = 0;
const append = (n) =>
  graph.updateState(thread, { messages: Array.from({ length: n }, () => new HumanMessage({ id: `${operation}${made++}`, content: text })) }, "chat");
const get = async () => {
  const read = (await graph.getState(thread)).values.messages.filter((m) => m.content.length === text.length).length;
  if (read !== messages) throw new Error(`${read} of ${messages} messages were read`);
};

await append(messages);
await pool.query("ANALYZE"); // like the benchmarks of the other services
const one = operation === "append" ? () => append(1) : get;
for (let i = 0; i < warm; i++) await one();
const start = process.hrtime.bigint();
for (let i = 0; i < count; i++) await one();
console.log(String(process.hrtime.bigint() - start));
await pool.end();
