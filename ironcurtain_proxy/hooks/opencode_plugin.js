// Asks the kernel of IronCurtain Proxy before each call of a tool; `ironcurtain-proxy hooks install`
// wrote it. What fails denies the call. The file beside it holds the command line of each event; it
// is read when it is needed, because a plugin that does not load is left out without a word.
import { spawn } from "node:child_process"
import { readFileSync } from "node:fs"

const hook = (event) => {
  const { hooks } = JSON.parse(readFileSync(new URL("../ironcurtain.json", import.meta.url), "utf8"))
  return hooks[event][0].command
}

const ask = (event, payload) =>
  new Promise((resolve) => {
    const [command, ...args] = hook(event)
    // The denial comes last. Hooks that only observe have none: every call runs, also where they fail.
    const otherwise = args.at(-1) ? "deny" : "allow"
    const fail = (why) => resolve({ decision: otherwise, reason: `${why}; nothing was run` })
    const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] })
    let out = ""
    let errors = ""
    child.stdout.on("data", (piece) => (out += piece))
    child.stderr.on("data", (piece) => (errors += piece))
    child.stdin.on("error", () => {})
    child.on("error", (error) => fail(`its hook cannot run (${error.message})`))
    child.on("close", (code) => {
      try {
        if (code !== 0) return fail(errors.trim() || "its hook failed")
        resolve({ decision: otherwise, reason: "no answer came", ...JSON.parse(out || "{}") })
      } catch {
        fail("its hook gave no answer that can be read")
      }
    })
    child.stdin.end(JSON.stringify(payload))
  })

export const IronCurtain = async ({ directory, client }) => {
  const parents = new Map()
  // The agent of a session: that of a session with a parent is a sub-agent.
  const agentOf = async (session) => {
    if (!parents.has(session)) {
      const found = await client.session.get({ path: { id: session } })
      if (!found?.data?.id) throw new Error("IronCurtain: the session is unknown. Nothing was run.")
      parents.set(session, found.data.parentID ? session : "")
    }
    return parents.get(session)
  }
  const about = async ({ tool, sessionID, callID }, args) => ({
    tool, args, id: callID ?? "", agent: await agentOf(sessionID), cwd: directory,
  })
  await ask("SessionStart", { cwd: directory }).catch(() => {})
  return {
    "tool.execute.before": async (input, output) => {
      const answer = await ask("PreToolUse", await about(input, output.args))
      if (answer.decision !== "allow") throw new Error(`Denied by IronCurtain: ${answer.reason}`)
    },
    "tool.execute.after": async (input, output) => {
      const said = await about(input, input.args ?? output.args ?? {})
      const exit = output.metadata?.exit ?? 0
      await ask("PostToolUse", { ...said, result: output.output ?? null, exit })
    },
    "chat.message": async ({ sessionID }, { parts }) => {
      // What the program adds to a message is not its user's.
      const texts = parts.filter((part) => part.type === "text" && !part.synthetic)
      const prompt = texts.map((part) => part.text).join("\n")
      await ask("UserPromptSubmit", { prompt, agent: await agentOf(sessionID), cwd: directory })
    },
    event: async ({ event }) => {
      if (event.type !== "session.idle") return
      await ask("Stop", { agent: await agentOf(event.properties.sessionID), cwd: directory })
    },
  }
}
