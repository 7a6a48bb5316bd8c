// Gives the requests of the conformance suite a token, which the suite has no option for.
import { subscribe } from "node:diagnostics_channel";

const authorization = `Bearer ${process.env.CONFORMANCE_TOKEN}`;
subscribe("undici:request:create", ({ request }) => {
  request.addHeader("authorization", authorization);
});
