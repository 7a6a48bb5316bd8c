// A real OpenID Connect provider on this machine: any name and password log in.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const [, , callback, secret] = process.argv;
const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "page", client_secret: secret, redirect_uris: [callback] }],
    pkce: { required: () => true },
    cookies: { keys: ["tests"] },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
