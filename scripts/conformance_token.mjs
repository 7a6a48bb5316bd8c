// Gives the requests of the conformance suite a token, which the suite has no option for. Most are
// made by fetch, some by node's own client.
import { subscribe } from "node:diagnostics_channel";
import http from "node:http";
import { syncBuiltinESMExports } from "node:module";

const authorization = `Bearer ${process.env.CONFORMANCE_TOKEN}`;
subscribe("undici:request:create", ({ request }) => {
  request.addHeader("authorization", authorization);
});

const plain = http.request;
http.request = (...given) => {
  const request = plain(...given);
  request.setHeader("authorization", authorization);
  return request;
};
syncBuiltinESMExports();
