// basic-ftp.cjs PORT DIR: what basic-ftp of npm does, an operation a line; NODE_PATH tells where it is.
const { Client } = require("basic-ftp");
const fs = require("fs"), { Readable, Writable } = require("stream");
let passed = 0, failed = 0;
async function check(name, run) {
  try { if (await run() === false) throw new Error("not so"); passed++; }
  catch (error) { failed++; console.log("FAIL", name, error.message); }
}
const sink = () => { const parts = []; const w = new Writable({ write(c, _, done) { parts.push(c); done(); } }); w.all = () => Buffer.concat(parts); return w; };
(async () => {
  const c = new Client(10000), dir = process.argv[3], big = require("crypto").randomBytes(300000);
  fs.mkdirSync(dir + "/tree/sub", { recursive: true });
  fs.writeFileSync(dir + "/tree/a", big); fs.writeFileSync(dir + "/tree/sub/b", "b");
  await check("access", () => c.access({ host: "127.0.0.1", port: +process.argv[2], user: "anonymous", password: "x@" }));
  await check("features", async () => (await c.features()).has("MLST"));
  await check("pwd", async () => await c.pwd() === "/");
  await check("ensureDir", () => c.ensureDir("/basic/deep"));
  await check("ensureDir again", () => c.ensureDir("/basic/deep"));
  await check("uploadFrom", () => c.uploadFrom(dir + "/tree/a", "a"));
  await check("uploadFrom stream", () => c.uploadFrom(Readable.from([Buffer.from("hello")]), "h"));
  await check("appendFrom", () => c.appendFrom(Readable.from([Buffer.from(" you")]), "h"));
  await check("size", async () => await c.size("h") === 9);
  await check("lastMod", async () => Math.abs(await c.lastMod("h") - Date.now()) < 60000);
  await check("downloadTo", async () => { await c.downloadTo(dir + "/back", "a"); return fs.readFileSync(dir + "/back").equals(big); });
  await check("downloadTo from", async () => { const w = sink(); await c.downloadTo(w, "a", 299990); return w.all().equals(big.subarray(299990)); });
  await check("list", async () => { const l = await c.list(); return l.length === 2 && l.find(f => f.name === "a").size === 300000; });
  await check("list owner", async () => (await c.list())[0].user !== undefined);
  await check("rename", () => c.rename("h", "i"));
  await check("remove", () => c.remove("i"));
  await check("remove of nothing", async () => { try { await c.remove("none"); return false; } catch (e) { return e.code === 550; } });
  await check("remove of nothing, ignored", () => c.remove("none", true));
  await check("uploadFromDir", () => c.uploadFromDir(dir + "/tree", "/basic/tree"));
  await check("downloadToDir", async () => { await c.downloadToDir(dir + "/got", "/basic/tree"); return fs.readFileSync(dir + "/got/a").equals(big) && fs.readFileSync(dir + "/got/sub/b", "utf8") === "b"; });
  await check("send", async () => (await c.send("SITE CHMOD 640 /basic/tree/a")).code === 200);
  await check("clearWorkingDir", async () => { await c.cd("/basic/tree"); await c.clearWorkingDir(); return (await c.list()).length === 0; });
  await check("removeEmptyDir", async () => { await c.cd("/"); await c.removeEmptyDir("/basic/tree"); });
  await check("removeDir", () => c.removeDir("/basic"));
  c.close();
  console.log(`passed ${passed} failed ${failed}`);
})();
