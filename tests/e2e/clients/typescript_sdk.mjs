// Two sessions through the client of the TypeScript SDK; prints what each saw as JSON.
//
//     typescript_sdk.mjs 1|2 URL COMMAND [ARGUMENT ...]
//
// The first is with the command, with our environment for the proxy; the second with the URL and
// the token in MCP_TOKEN.
const [which, url, ...program] = process.argv.slice(2);
const first = which === "1";
const { Client } = first
  ? await import("@modelcontextprotocol/sdk/client/index.js")
  : await import("@modelcontextprotocol/client");
const { StdioClientTransport } = first
  ? await import("@modelcontextprotocol/sdk/client/stdio.js")
  : await import("@modelcontextprotocol/client/stdio");
const { StreamableHTTPClientTransport } = first
  ? await import("@modelcontextprotocol/sdk/client/streamableHttp.js")
  : await import("@modelcontextprotocol/client");
const types = first ? await import("@modelcontextprotocol/sdk/types.js") : {};
const named = (method, schema) => (first ? types[schema] : method);

async function seenOf(command, ...args) {
  const seen = { asked: "", log: [], progress: [] };
  const client = new Client(
    { name: "typescript", version: "1" },
    { capabilities: { elicitation: {} } },
  );
  client.setRequestHandler(named("elicitation/create", "ElicitRequestSchema"), async (request) => {
    seen.asked = request.params.message.split("\n")[0];
    await new Promise((resolve) => setTimeout(resolve, 400)); // nobody reads faster
    return { action: "accept", content: { decision: "approve" } };
  });
  client.setNotificationHandler(
    named("notifications/message", "LoggingMessageNotificationSchema"),
    (notification) => void seen.log.push(notification.params.data),
  );
  const changed = new Promise((resolve) =>
    client.setNotificationHandler(
      named("notifications/tools/list_changed", "ToolListChangedNotificationSchema"),
      () => resolve(true),
    ),
  );
  const call = (name, given, options = {}) => {
    const params = { name, arguments: given };
    return first ? client.callTool(params, undefined, options) : client.callTool(params, options);
  };
  const text = (result) => result.content[0].text;
  const names = async () => (await client.listTools()).tools.map((tool) => tool.name).sort();

  const headers = { Authorization: `Bearer ${process.env.MCP_TOKEN}` };
  const transport = command.startsWith("http:")
    ? new StreamableHTTPClientTransport(new URL(command), { requestInit: { headers } })
    : new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
  const agree = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    seen.version = version;
    agree?.(version);
  };
  await client.connect(transport);
  // Counted as it arrives: this SDK drops progress that comes together with the result.
  const deliver = transport.onmessage;
  transport.onmessage = (message, besides) => {
    if (message.method === "notifications/progress") seen.progress.push(message.params.progress);
    deliver(message, besides);
  };
  seen.capabilities = client.getServerCapabilities();
  seen.server = client.getServerVersion().name;
  seen.instructed = client.getInstructions() !== undefined;
  seen.ping = await client.ping();
  seen.tools = await names();
  await client.setLoggingLevel("debug");
  seen.answer = text(await call("answer", { text: "hello \u00e9\u{1f600}" }));
  await call("log", { text: "a word" });
  await call("progress", { times: 3 }, { onprogress: () => {} });
  seen.approved = JSON.parse(text(await call("ask", { text: "/srv/x" })));
  const denied = await call("forbidden", { text: "x" });
  seen.denied = [denied.isError, text(denied).split(":")[0]];
  try {
    await call("hold", { key: "k" }, { signal: AbortSignal.timeout(300) });
  } catch {
    seen.gave_up = true;
  }
  try {
    await client.request({ method: "resources/list" }, first ? types.EmptyResultSchema : undefined);
  } catch (error) {
    seen.resources = error.code;
  }
  await call("change", { add: "added" });
  seen.changed = await changed;
  seen.added = (await names()).includes("added");
  await client.close();
  return seen;
}

process.stdout.write(JSON.stringify([await seenOf(...program), await seenOf(url)]));
