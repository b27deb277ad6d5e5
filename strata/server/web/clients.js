// Settings of the clients that people use most, ready to paste: see docs/clients.md.

/** [name, what to do with it, text] for a server at `url` with the model `model`. */
export function commands(url, model, needsKey) {
  const key = needsKey ? "YOUR_KEY" : "EMPTY";
  return [
    [
      "Claude Code",
      "In a shell",
      `export ANTHROPIC_BASE_URL=${url} ANTHROPIC_API_KEY=${key}
export ANTHROPIC_MODEL=${model} ANTHROPIC_DEFAULT_HAIKU_MODEL=${model}
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
claude`,
    ],
    [
      "codex",
      `In ~/.codex/config.toml; then STRATA_KEY=${key} codex`,
      `model = "${model}"
model_provider = "strata"

[model_providers.strata]
name = "Strata"
base_url = "${url}/v1"
env_key = "STRATA_KEY"
wire_api = "responses"`,
    ],
    [
      "opencode",
      "In ~/.config/opencode/opencode.json",
      JSON.stringify(
        {
          model: `strata/${model}`,
          provider: {
            strata: {
              npm: "@ai-sdk/openai-compatible",
              name: "Strata",
              options: { baseURL: `${url}/v1`, apiKey: key },
              models: { [model]: { name: model } },
            },
          },
        },
        null,
        2,
      ),
    ],
    [
      "OpenAI client",
      "In Python",
      `from openai import OpenAI

client = OpenAI(base_url="${url}/v1", api_key="${key}")
answer = client.chat.completions.create(
    model="${model}", messages=[{"role": "user", "content": "Hello"}]
)
print(answer.choices[0].message.content)`,
    ],
    [
      "curl",
      "In a shell",
      `curl ${url}/v1/chat/completions -H 'Content-Type: application/json' \\
  ${needsKey ? `-H 'Authorization: Bearer ${key}' ` : ""}-d '{"messages": [{"role": "user", "content": "Hello"}]}'`,
    ],
  ];
}
