// An authorization server of `oidc-provider`: the certified one of npm. A person who comes is logged
// in and consents to everything; what the protocol checks is checked, and a refresh token that is
// shown twice ends its grant. Says its port on standard output.

import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const require = createRequire(process.argv[2]);
const { default: Provider } = await import(require.resolve('oidc-provider'));

console.info = console.warn = () => {};
const listener = createServer();
await new Promise((resolve) => listener.listen(0, '127.0.0.1', resolve));
const { port } = listener.address();

const provider = new Provider(`http://127.0.0.1:${port}`, {
  cookies: { keys: ['test'] },
  scopes: ['openid', 'offline_access', 'notes:read', 'notes:write'],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async () => true,
  ttl: { AccessToken: 3600, Grant: 3600, Interaction: 600, Session: 600, RefreshToken: 3600 },
  interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_ctx, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  features: {
    devInteractions: { enabled: false },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (_ctx, resource) => ({
        scope: 'notes:read notes:write',
        audience: resource,
        accessTokenFormat: 'opaque',
      }),
    },
  },
});

async function interact(request, response) {
  const { params, prompt, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    await provider.interactionFinished(request, response, { login: { accountId: 'ann' } });
    return;
  }
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
  for (const [resource, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, scopes.join(' '));
  }
  await provider.interactionFinished(request, response, { consent: { grantId: await grant.save() } });
}

// What a server would ask by introspection.
async function check(request, response) {
  const token = await provider.AccessToken.find(request.url.split('/').pop());
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify(token ? { scope: token.scope ?? '', resource: token.aud } : null));
}

const answer = provider.callback();
listener.on('request', (request, response) => {
  if (request.url.startsWith('/interaction/')) interact(request, response);
  else if (request.url.startsWith('/check/')) check(request, response);
  else answer(request, response);
});
console.log(port);
