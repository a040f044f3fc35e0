// Bundles CodeMirror into one minified file with the licences of everything in it at its top.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const output = fileURLToPath(new URL("../src/multiplexnet/playground/static/codemirror.js", import.meta.url));
const modules = fileURLToPath(new URL("node_modules", import.meta.url));

const { metafile } = await build({
  entryPoints: ["codemirror.js"],
  bundle: true,
  write: false,
  metafile: true,
  format: "esm",
  minify: true,
  outdir: "out",
});
const used = new Set(Object.keys(metafile.inputs).flatMap((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1] ?? []));
const licences = new Map(); // the text, and the packages that it is for
for (const name of [...used].sort()) {
  const folder = `${modules}/${name}`;
  const { version } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const text = readFileSync(`${folder}/${file}`, "utf8").trim();
  licences.set(text, [...(licences.get(text) ?? []), `${name} ${version}`]);
}
const words = [...licences].map(([text, names]) => `${names.join(", ")}\n\n${text}`).join("\n\n---\n\n");
await build({
  entryPoints: ["codemirror.js"],
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  banner: { js: `/*! CodeMirror, bundled by playground/build.js from\n\n${words}\n*/` },
  outfile: output,
});
console.log(`${output}: ${statSync(output).size} bytes from ${[...used].join(", ")}`);
