// Makes one program of the sandbox runtime: `node quick_srt.mjs CLI BUNDLE PROGRAM NODE`.
//
// CLI is the installed one, whose text is joined unchanged into BUNDLE. PROGRAM runs it from what
// V8 compiled of it before, which its first run keeps beside BUNDLE.
import { chmodSync, renameSync, writeFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
import { rolldown } from 'rolldown';

const [cli, bundle, program, node] = process.argv.slice(2);
const made = `${program}.${process.pid}`;
const joined = await rolldown({ input: cli, platform: 'node', logLevel: 'silent' });
await joined.write({ file: bundle, format: 'cjs', codeSplitting: false });
const text = `#!${node}
const { readFileSync, renameSync, writeFileSync } = require('node:fs');
const Module = require('node:module');
const path = require('node:path');
const { Script } = require('node:vm');
const bundle = ${JSON.stringify(bundle)};
let cachedData;
try {
  cachedData = readFileSync(bundle + '.compiled');
} catch {}
const text = Module.wrap(readFileSync(bundle, 'utf8').replace(/^#!.*/, ''));
const script = new Script(text, { filename: bundle, cachedData });
if (!cachedData && process.argv[2] === '--version') {
  process.on('exit', () => {
    writeFileSync(bundle + '.new', script.createCachedData());
    renameSync(bundle + '.new', bundle + '.compiled');
  });
}
const module_ = new Module(bundle);
const require_ = Module.createRequire(bundle);
script.runInThisContext()(module_.exports, require_, module_, bundle, path.dirname(bundle));
`;
writeFileSync(made, text);
chmodSync(made, 0o755);
execFileSync(made, ['--version']);
renameSync(made, program);
