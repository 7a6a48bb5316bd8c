// One session of the TypeScript SDK that speaks 2026-07-28 alone; prints what it saw as JSON.
//
//     modern_typescript.mjs URL|- COMMAND [ARGUMENT ...]
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [url, command, ...args] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${process.env.MCP_TOKEN}` };
const transport =
  url === "-"
    ? new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" })
    : new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
const client = new Client(
  { name: "typescript", version: "1" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: { pin: "2026-07-28" } },
  },
);
const asked = [];
client.setRequestHandler("elicitation/create", async (request) => {
  asked.push(request.params.message.split("\n")[0]);
  await new Promise((resolve) => setTimeout(resolve, 400)); // nobody reads faster
  const content = "decision" in request.params.requestedSchema.properties;
  return { action: "accept", content: content ? { decision: "approve" } : { name: "Ann" } };
});
await client.connect(transport);
const call = async (name, given) =>
  (await client.callTool({ name, arguments: given })).content[0].text;
const seen = {
  tools: (await client.listTools()).tools.length > 0,
  answer: await call("scripted__answer", { text: "hello" }),
  approved: await call("scripted__ask", { text: "please" }),
  named: (await call("whole__ask", {})).includes('"Ann"'),
  denied: (await call("scripted__forbidden", { text: "x" })).includes("DENIED"),
  asked,
};
await client.close();
console.log(JSON.stringify(seen));
