// openai for Node: chat, stream, tools, structured output, responses, early close.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { city, model, must, run, url, user } from "./common.mjs";

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "EMPTY", maxRetries: 0 });
const tool = { type: "function", function: { name: "get_weather", parameters: city } };
const flat = { type: "function", name: "get_weather", parameters: city, strict: false };
const person = z.object({ name: z.string(), age: z.int() });
const ask = (text, more = {}) =>
  client.chat.completions.create({ model, messages: [user(text)], ...more });

run({
  async chat() {
    const { message, finish_reason: finish } = (await ask("Say hello")).choices[0];
    return { text: message.content, reasoning: message.reasoning_content, finish };
  },
  async stream() {
    let text = "", reasoning = "", finish, count = 0;
    for await (const { choices } of await ask("Say hello", { stream: true })) {
      text += choices[0].delta.content ?? "";
      reasoning += choices[0].delta.reasoning_content ?? "";
      finish = choices[0].finish_reason;
      count += 1;
    }
    must(count > 5, "it came at once");
    return { text, reasoning, finish };
  },
  async tools() {
    const messages = [user("What is the weather?")];
    const first = await client.chat.completions.create({ model, messages, tools: [tool] });
    const message = first.choices[0].message, call = message.tool_calls[0];
    messages.push(message, { role: "tool", tool_call_id: call.id, content: "21 degrees" });
    const last = await client.chat.completions.create({ model, messages, tools: [tool] });
    return {
      call: [call.function.name, JSON.parse(call.function.arguments)],
      text: last.choices[0].message.content,
      read: first.usage.prompt_tokens,
      cached: last.usage.prompt_tokens_details.cached_tokens,
    };
  },
  async tools_stream() {
    const messages = [user("What is the weather in two cities?")];
    const events = client.chat.completions.stream({ model, messages, tools: [tool] });
    const { tool_calls: calls } = (await events.finalChatCompletion()).choices[0].message;
    return { calls: calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]) };
  },
  async structured() {
    const response_format = zodResponseFormat(person, "person");
    const messages = [user("A person as JSON")];
    const answer = await client.chat.completions.parse({ model, messages, response_format });
    return { object: answer.choices[0].message.parsed };
  },
  async responses() {
    const answer = await client.responses.create({ model, input: "Say hello" });
    return { text: answer.output_text };
  },
  async responses_stream() {
    let text = "";
    const events = client.responses.stream({ model, input: "Say hello" });
    for await (const event of events) {
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    must((await events.finalResponse()).output_text === text, "pieces are not the whole");
    return { text };
  },
  async responses_tools() {
    const input = [user("What is the weather?")];
    const first = await client.responses.create({ model, input, tools: [flat] });
    const call = first.output.find((item) => item.type === "function_call");
    const output = { type: "function_call_output", call_id: call.call_id, output: "21 degrees" };
    input.push(...first.output, output);
    const last = await client.responses.create({ model, input, tools: [flat] });
    return {
      call: [call.name, JSON.parse(call.arguments)],
      text: last.output_text,
      read: first.usage.input_tokens,
      cached: last.usage.input_tokens_details.cached_tokens,
    };
  },
  async responses_structured() {
    const text = { format: zodTextFormat(person, "person") };
    const answer = await client.responses.parse({ model, input: "A person as JSON", text });
    return { object: answer.output_parsed };
  },
  async early_close() {
    const events = await ask("Count", { stream: true });
    for await (const _ of events) break;
    events.controller.abort();
    return {};
  },
});
