// Loaded by every Node.js of a sandbox, before its program: makes it go by HTTPS_PROXY.
//
// A sandbox has no network but its proxy. With NODE_USE_ENV_PROXY=1, Node.js from 22.21 and 24.5 on
// heeds the proxy's variables in `fetch`, and in `http` where a program has no agent of its own. The
// rest is done here. Without, a program looks the host up, which fails, whatever host is allowed.
'use strict';

install(process.allowedNodeEnvironmentFlags.has('--use-env-proxy'));

function install(hasProxy) {
  const environment = process.env;
  const proxies = {
    'http:': parsed(environment.http_proxy || environment.HTTP_PROXY),
    'https:': parsed(environment.https_proxy || environment.HTTPS_PROXY),
  };
  const direct = (environment.no_proxy || environment.NO_PROXY || '')
    .toLowerCase().split(',').map((one) => one.trim().replace(/^\*?\./, '')).filter(Boolean);
  if (!proxies['http:'] && !proxies['https:']) return;

  const proxyFor = (protocol, host) => {
    const name = String(host || '').toLowerCase().replace(/^\[|\]$/g, '');
    const isDirect = !name || direct.some((one) => name === one || name.endsWith(`.${one}`));
    return isDirect ? null : proxies[protocol];
  };

  // `fetch`: its own client is loaded by its first call, and has no name that a program may require.
  const symbol = Symbol.for('undici.globalDispatcher.1');
  const before = globalThis.fetch;
  if (before && !hasProxy) {
    globalThis.fetch = function fetch(...given) {
      globalThis.fetch = before;
      void globalThis.Request;
      const Agent = globalThis[symbol]?.constructor;
      if (Agent?.name === 'Agent') {
        globalThis[symbol] = new Agent({
          connect(options, callback) {
            connect(options.protocol, options.hostname, options.port, options, callback);
          },
        });
      }
      return before.apply(this, given);
    };
  }

  // `http` and `https`, also with an agent of the program's own.
  for (const [protocol, library] of [['http:', require('http')], ['https:', require('https')]]) {
    const made = library.Agent.prototype.createConnection;
    library.Agent.prototype.createConnection = function createConnection(options, callback) {
      const { host, port, socketPath } = options;
      if (socketPath || !callback || this.options?.proxyEnv || !proxyFor(protocol, host)) {
        return made.call(this, options, callback);
      }
      connect(protocol, host, port, options, callback);
      return undefined;
    };
  }

  function connect(protocol, host, wanted, options, callback) {
    const isSecure = protocol === 'https:';
    const port = Number(wanted) || (isSecure ? 443 : 80);
    const proxy = proxyFor(protocol, host);
    const bare = String(host).replace(/^\[|\]$/g, '');
    const finish = once(callback);
    const secured = (socket) => {
      const name = require('net').isIP(bare) ? '' : options.servername || bare;
      const given = { ...options, socket, servername: name, host: bare, path: undefined };
      const over = require('tls').connect(given, () => finish(null, over));
      over.once('error', finish);
    };
    if (!proxy) {
      const socket = require('net').connect({ host: bare, port });
      socket.once('error', finish);
      socket.once('connect', () => (isSecure ? secured(socket) : finish(null, socket)));
      return;
    }
    const target = bare.includes(':') ? `[${bare}]:${port}` : `${bare}:${port}`;
    const headers = { host: target };
    if (proxy.username) {
      const user = `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`;
      headers['proxy-authorization'] = `Basic ${Buffer.from(user).toString('base64')}`;
    }
    const request = require('http').request({
      agent: false, method: 'CONNECT', host: proxy.hostname, port: proxy.port, path: target, headers,
    });
    request.once('error', finish);
    request.once('connect', (response, socket) => {
      if (response.statusCode !== 200) {
        socket.destroy();
        finish(new Error(`Proxy response (${response.statusCode}) !== 200 when HTTP Tunneling`));
      } else if (isSecure) {
        secured(socket);
      } else {
        finish(null, socket);
      }
    });
    request.end();
  }
}

function parsed(text) {
  try {
    const url = new URL(text);
    return url.protocol === 'http:' ? url : null;
  } catch {
    return null;
  }
}

function once(callback) {
  let isDone = false;
  return (...given) => {
    if (!isDone) {
      isDone = true;
      callback(...given);
    }
  };
}
