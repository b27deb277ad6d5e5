// @anthropic-ai/sdk for Node: messages, stream, tools, count_tokens, early close.

import Anthropic from "@anthropic-ai/sdk";
import { city, model, must, run, url, user } from "./common.mjs";

const client = new Anthropic({ baseURL: url, apiKey: "EMPTY", maxRetries: 0 });
const tools = [{ name: "get_weather", description: "The weather.", input_schema: city }];
const thinking = { type: "enabled", budget_tokens: 1024 };
const asked = (text, more = {}) => ({ model, max_tokens: 20000, messages: [user(text)], ...more });
const of = (message, type) => message.content.filter((block) => block.type === type);
const seen = (message) => ({
  text: of(message, "text").map((block) => block.text).join(""),
  reasoning: of(message, "thinking").map((block) => block.thinking).join(""),
  finish: message.stop_reason,
});
const whole = (usage) =>
  usage.input_tokens + (usage.cache_read_input_tokens ?? 0)
  + (usage.cache_creation_input_tokens ?? 0);

run({
  async chat() {
    return seen(await client.messages.create(asked("Say hello", { thinking })));
  },
  async stream() {
    let count = 0;
    const events = client.messages.stream(asked("Say hello", { thinking }));
    for await (const event of events) count += event.type === "content_block_delta";
    must(count > 5, "it came at once");
    return seen(await events.finalMessage());
  },
  async tools() {
    const first = await client.messages.create(asked("What is the weather?", { tools }));
    const [call] = of(first, "tool_use");
    const result = { type: "tool_result", tool_use_id: call.id, content: "21 degrees" };
    const messages = [
      user("What is the weather?"),
      { role: "assistant", content: first.content },
      { role: "user", content: [result] },
    ];
    const last = await client.messages.create(asked("", { messages, tools }));
    return {
      call: [call.name, call.input],
      text: seen(last).text,
      read: whole(first.usage),
      cached: last.usage.cache_read_input_tokens,
    };
  },
  async tools_stream() {
    const events = client.messages.stream(asked("What is the weather in two cities?", { tools }));
    const calls = of(await events.finalMessage(), "tool_use");
    return { calls: calls.map((call) => [call.name, call.input]) };
  },
  async count_tokens() {
    const body = { model, messages: [user("Say hello")], tools };
    const { input_tokens: counted } = await client.messages.countTokens(body);
    const answer = await client.messages.create({ max_tokens: 2048, ...body });
    return { counted: counted === whole(answer.usage) };
  },
  async early_close() {
    const events = client.messages.stream(asked("Count"));
    for await (const event of events) if (event.type === "content_block_delta") break;
    events.abort();
    return {};
  },
});
