// A server of which each tool requests a URL by another way of Node.js.
import http from 'node:http';
import https from 'node:https';
import { createInterface } from 'node:readline';

const library = (url) => (url.startsWith('https') ? https : http);
const by = (url, options) =>
  new Promise((resolve, reject) => {
    library(url)
      .get(url, options, (answer) => {
        let text = '';
        answer.on('data', (data) => (text += data));
        answer.on('end', () => (answer.statusCode === 200 ? resolve(text) : reject(Error(text))));
      })
      .on('error', reject);
  });
const ways = {
  fetch: async (url) => {
    const answer = await fetch(url);
    if (!answer.ok) throw Error(await answer.text());
    return answer.text();
  },
  library: (url) => by(url, {}),
  agent: (url) => by(url, { agent: new (library(url).Agent)({ keepAlive: true }) }),
};
const schema = { type: 'object', properties: { what: { type: 'string' } } };
const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'reaching', version: '1' },
  }),
  'tools/list': () => ({
    tools: Object.keys(ways).map((name) => ({ name, inputSchema: schema })),
  }),
  'tools/call': async ({ name }) => {
    try {
      const text = await ways[name](process.env.REACHED);
      return { content: [{ type: 'text', text }] };
    } catch (error) {
      return { content: [{ type: 'text', text: String(error.message) }], isError: true };
    }
  },
};
createInterface({ input: process.stdin }).on('line', async (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = (await answers[method]?.(params)) ?? {};
  process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', id, result })}\n`);
});
