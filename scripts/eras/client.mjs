// Sessions through a client of TypeScript, for `run.py`; prints what each saw as JSON.
//
//     client.mjs 1|2 legacy|auto|2026-07-28 SERVERS WAYS [COMMAND ...]
//
// SERVERS are the names of servers behind the proxy, with commas; without one, it is alone.
// WAYS are addresses, with commas, of which each gets a session; `-` is that of COMMAND.
const [which, mode, names, ways, command, ...args] = process.argv.slice(2);
const first = which === "1";
const place = first ? "@modelcontextprotocol/sdk/client/" : "@modelcontextprotocol/client";
const { Client } = await import(first ? `${place}index.js` : place);
const { StdioClientTransport } = await import(first ? `${place}stdio.js` : `${place}/stdio`);
const http = await import(first ? `${place}streamableHttp.js` : place);
const types = first ? await import("@modelcontextprotocol/sdk/types.js") : {};

const headers = { Authorization: `Bearer ${process.env.MCP_TOKEN ?? ""}` };
let client;
let moves;

async function connect(url) {
  const transport =
    url === "-"
      ? new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" })
      : new http.StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  const negotiated = mode === "legacy" || mode === "auto" ? mode : { pin: mode };
  client = new Client(
    { name: "typescript", version: "1" },
    {
      capabilities: { elicitation: { form: {} } },
      ...(first ? {} : { versionNegotiation: { mode: negotiated } }),
    },
  );
  client.setRequestHandler(
    first ? types.ElicitRequestSchema : "elicitation/create",
    async () => ({ action: "accept", content: { name: "Ann" } }),
  );
  await client.connect(transport);
  // Counted as it arrives: this SDK drops progress that comes together with the result.
  moves = [];
  const deliver = transport.onmessage;
  transport.onmessage = (message, besides) => {
    if (message.method === "notifications/progress") moves.push(message.params.progress);
    deliver(message, besides);
  };
}

async function seenOf(name) {
  const [tool, uri] = name ? [`${name}__`, `${name}+note://one`] : ["", "note://one"];
  const seen = {};
  const step = async (key, work) => {
    try {
      seen[key] = await work();
    } catch (error) {
      seen[key] = `${error.name}: ${error.message}`.slice(0, 300);
    }
  };
  const call = async (what, given) => {
    const params = { name: `${tool}${what}`, arguments: given };
    const options = { timeout: 30000, ...(what === "steps" ? { onprogress: () => {} } : {}) };
    const done = await (first
      ? client.callTool(params, undefined, options)
      : client.callTool(params, options));
    return done.content[0].text;
  };
  await step("add", () => call("add", { a: 2, b: 3 }));
  moves = [];
  await step("steps", () => call("steps", { times: 3 }));
  seen.progress = moves;
  await step("who", () => call("who", {}));
  await step("guard", () => call("guard", { text: "x" }));
  await step("read", async () => (await client.readResource({ uri })).contents[0].text);
  await step("prompt", async () => {
    const said = { name: `${tool}hello`, arguments: { name: "Bo" } };
    return (await client.getPrompt(said)).messages[0].content.text;
  });
  return seen;
}

const every = [];
for (const url of ways.split(",")) {
  await connect(url);
  const tools = (await client.listTools()).tools.map((tool) => tool.name);
  const seen = {};
  for (const name of names.split(",")) {
    const given = tools.filter((tool) => !name || tool.startsWith(`${name}__`));
    seen[name] = { tools: given.length, ...(await seenOf(name)) };
  }
  await client.close();
  every.push(seen);
}
process.stdout.write(JSON.stringify(every), () => process.exit(0));
