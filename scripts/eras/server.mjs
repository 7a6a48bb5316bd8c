// One server, written with one of the two generations of the TypeScript SDK, for `run.py`.
//
//     server.mjs 1|2 [--alone] [--http]
//
// `--alone` refuses what is no request of 2026-07-28. `--http` listens at a port, which is printed.
import { createServer } from "node:http";
import { z } from "zod";

const [which, ...options] = process.argv.slice(2);
const first = which === "1";
const sdk = first
  ? await import("@modelcontextprotocol/sdk/server/mcp.js")
  : await import("@modelcontextprotocol/server");
const shape = (fields) => (first ? fields : z.object(fields));
const text = (said) => ({ content: [{ type: "text", text: String(said) }] });
const QUESTION = {
  message: "Who are you?",
  requestedSchema: {
    type: "object",
    properties: { name: { type: "string" } },
    required: ["name"],
  },
};

function make() {
  const server = new sdk.McpServer({ name: "eras", version: "1" });
  const tool = (name, fields, run) =>
    server.registerTool(name, { description: name, inputSchema: shape(fields) }, run);
  tool("add", { a: z.number(), b: z.number() }, async ({ a, b }) => text(a + b));
  tool("guard", { text: z.string() }, async (given) => text(given.text));
  tool("steps", { times: z.number() }, async ({ times }, context) => {
    const request = first ? context : context.mcpReq;
    const progressToken = request._meta?.progressToken;
    for (let progress = 1; progress <= times; progress += 1) {
      const params = { progressToken, progress, total: times };
      const send = first ? context.sendNotification : context.mcpReq.notify;
      if (progressToken !== undefined)
        await send({ method: "notifications/progress", params });
    }
    return text("done");
  });
  tool("who", {}, async (_, context) => {
    if (first) {
      const said = await server.server.elicitInput(QUESTION);
      return text(said.action === "accept" ? `Hello ${said.content.name}` : said.action);
    }
    const said = context.mcpReq.inputResponses?.who;
    if (said === undefined)
      return sdk.inputRequired({ inputRequests: { who: sdk.inputRequired.elicit(QUESTION) } });
    return text(said.action === "accept" ? `Hello ${said.content.name}` : said.action);
  });
  server.registerResource("one", "note://one", {}, async (uri) => ({
    contents: [{ uri: uri.href, text: "one" }],
  }));
  server.registerPrompt("hello", { argsSchema: shape({ name: z.string() }) }, ({ name }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Hello ${name}` } }],
  }));
  return server;
}

const legacy = options.includes("--alone") ? "reject" : first ? undefined : "serve";

async function body(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}

// The first generation has a transport for each session.
async function sessions() {
  const { StreamableHTTPServerTransport } = await import(
    "@modelcontextprotocol/sdk/server/streamableHttp.js"
  );
  const known = new Map();
  return async (request, response) => {
    let transport = known.get(request.headers["mcp-session-id"]);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: () => crypto.randomUUID(),
        onsessioninitialized: (name) => void known.set(name, transport),
      });
      await make().connect(transport);
    }
    await transport.handleRequest(request, response);
  };
}

// The second one answers requests of the web.
async function requests() {
  const handler = sdk.createMcpHandler(make, legacy === "reject" ? { legacy } : {});
  return async (request, response) => {
    const gone = new AbortController();
    response.on("close", () => gone.abort());
    const init = { method: request.method, headers: request.headers, signal: gone.signal };
    if (request.method === "POST") init.body = await body(request);
    const url = `http://${request.headers.host}${request.url}`;
    const answer = await handler.fetch(new Request(url, init));
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body !== null) for await (const part of answer.body) response.write(part);
    response.end();
  };
}

if (options.includes("--http")) {
  const answer = first ? await sessions() : await requests();
  const listener = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  listener.listen(0, "127.0.0.1", () => console.log(listener.address().port));
} else if (first) {
  const { StdioServerTransport } = await import("@modelcontextprotocol/sdk/server/stdio.js");
  await make().connect(new StdioServerTransport());
} else {
  const { serveStdio } = await import("@modelcontextprotocol/server/stdio");
  serveStdio(make, { legacy });
}
