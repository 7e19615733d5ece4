// SPDX-License-Identifier: Apache-2.0

// Serves a certified OpenID Connect provider on a loopback address. The first line
// of standard input is its configuration; it ends with standard input.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import Provider from 'oidc-provider';

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const { users, clients, audience, scopes } = JSON.parse((await lines.next()).value);

const server = createServer();
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;

const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey.export({ format: 'jwk' });
const provider = new Provider(issuer, {
  clients: clients ?? [],
  jwks: { keys: [{ ...key, use: 'sig', alg: 'RS256', kid: 'one' }] },
  cookies: { keys: ['a key for the cookies of a test'] },
  claims: { openid: ['sub'], profile: ['name'], email: ['email', 'email_verified'], groups: ['groups'] },
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  findAccount: (_, id) => users?.[id] && { accountId: id, claims: () => ({ sub: id, ...users[id] }) },
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: () => ({ audience, scope: (scopes ?? []).join(' '), accessTokenFormat: 'jwt', jwt: { sign: { alg: 'RS256' } } }),
    },
  },
});
server.on('request', provider.callback());
process.stdout.write(`${issuer}\n`);

await lines.next();
server.closeAllConnections();
server.close();
