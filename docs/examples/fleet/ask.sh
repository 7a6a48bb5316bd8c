#!/bin/sh
# Let an agent on a machine ask for one call, as its client would: ask.sh machine-1
#
# In place of a client it sends messages of MCP, and prints the answer to the call.
set -eu
machine=$1
waiting=$(mktemp -d)
say() { printf '%s\n' "$1"; }
{
    say '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"ask","version":"1"}}}'
    say '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    # The first time, the server has yet to be fetched.
    until [ ! -d "$waiting" ] || grep -qs '"name":"read_graph"' "$waiting/said"; do
        say '{"jsonrpc":"2.0","id":3,"method":"tools/list"}'
        sleep 0.3
    done
    say '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_graph","arguments":{}}}'
    # The agent waits as long as the person takes.
    while [ -d "$waiting" ]; do sleep 0.3; done
} | ${ASK_WITH:-docker compose exec -T} "$machine" ${ASK_PROXY:-ironcurtain-proxy} |
    tee "$waiting/said" | {
    sed -un '/"id":2,/{p;q}'
    rm -r "$waiting"
}
