// The Vercel AI SDK, which checks each chunk against a schema: three providers, four APIs.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { city, model, must, run, url } from "./common.mjs";

const baseURL = `${url}/v1`, apiKey = "EMPTY";
const openai = createOpenAI({ baseURL, apiKey });
const compatible = createOpenAICompatible({
  name: "strata", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true,
});
const ways = {
  "": compatible(model),
  openai: openai.chat(model),
  responses: openai.responses(model),
  anthropic: createAnthropic({ baseURL, apiKey })(model),
};
const said = [];
const weather = tool({
  description: "The weather.",
  inputSchema: jsonSchema(city),
  execute: async (input) => {
    said.push(["get_weather", input]);
    return "21 degrees";
  },
});

function flowsOf(way) {
  const ask = (prompt, more = {}) => ({
    model: way, prompt, maxRetries: 0, maxOutputTokens: 20000, ...more,
  });
  return {
    async chat() {
      const { text, finishReason: finish } = await generateText(ask("Say hello"));
      return { text, finish };
    },
    async stream() {
      let text = "", count = 0;
      for await (const part of streamText(ask("Say hello")).fullStream) {
        if (part.type === "error") throw part.error;
        if (part.type === "text-delta") text += part.text;
        count += 1;
      }
      must(count > 5, "it came at once");
      return { text };
    },
    async tools() {
      said.length = 0;
      const more = { tools: { get_weather: weather }, stopWhen: stepCountIs(3) };
      const result = streamText(ask("What is the weather?", more));
      for await (const part of result.fullStream) if (part.type === "error") throw part.error;
      const [first, last] = await result.steps;
      const cached = last.usage.inputTokenDetails.cacheReadTokens;
      return { call: said[0], text: last.text, read: first.usage.inputTokens, cached };
    },
    async structured() {
      const output = Output.object({ schema: z.object({ name: z.string(), age: z.int() }) });
      return { object: (await generateText(ask("A person as JSON", { output }))).output };
    },
    async early_close() {
      const stopper = new AbortController();
      const result = streamText(ask("Count", { abortSignal: stopper.signal }));
      for await (const part of result.fullStream) {
        if (part.type === "text-delta") stopper.abort();
      }
      return {};
    },
  };
}

const flows = {};
for (const [name, way] of Object.entries(ways)) {
  for (const [flow, act] of Object.entries(flowsOf(way))) {
    flows[name ? `${name}_${flow}` : flow] = act;
  }
}
flows.reasoning = async () => {
  const { reasoningText: reasoning } = await generateText({
    model: ways[""], prompt: "Say hello", maxRetries: 0,
  });
  return { reasoning };
};
await run(flows);
