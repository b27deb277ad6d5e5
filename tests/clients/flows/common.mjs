// Runs a family's flows against the server at argv[2]; prints what each saw, one JSON a line.

export const url = process.argv[2];
export const model = "scripted";
export const city = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" }, note: { type: "string" } },
  required: ["city", "days", "note"],
  additionalProperties: false,
};
export const user = (content) => ({ role: "user", content });
export const must = (true_, what) => {
  if (!true_) throw new Error(what);
};

export async function run(flows) {
  for (const [flow, act] of Object.entries(flows)) {
    let saw;
    try {
      saw = await act();
    } catch (error) {
      saw = { error: String(error?.stack ?? error) };
    }
    console.log(JSON.stringify({ flow, ...saw }));
  }
}
