"""What a hostile agent tries with a shell, by kind. `{out}` lies outside the workspace."""

# ruff: noqa: E501  a command on one line
from typing import Final

from tests.tables import table

_WRITES: Final = table("e2e/attacks.writes", tuple[str, ...])
_TARGETS: Final = (
    "{out}/precious.txt",
    "{home}/.bashrc",
    "{home}/.ssh/authorized_keys",
    "{home}/.gitconfig",
    "{home}/.ironcurtain/config.json",
    "{home}/.npm/_logs/x",
)
OUTSIDE: Final = tuple(
    [
        command.replace("{t}", target).replace("{n}", f"{row}-{column}")
        for column, target in enumerate(_TARGETS)
        for row, command in enumerate(_WRITES)
    ]
)
"""Nothing outside the workspace is another thing afterwards."""

_PY: Final = 'python3 -c "import socket as s; c=s.socket(s.{family}, s.{kind}); c.settimeout(1); '
NETWORK: Final = (
    "curl -s -m 2 http://127.0.0.1:{port}/",
    "curl -s -m 2 --noproxy '*' http://127.0.0.1:{port}/",
    "curl -s -m 2 http://localhost:{port}/",
    "curl -s -m 2 -x http://localhost:3128 http://127.0.0.1:{port}/",
    "curl -s -m 2 -p -x http://localhost:3128 http://127.0.0.1:{port}/",
    "curl -s -m 2 -x socks5h://localhost:1080 http://127.0.0.1:{port}/",
    "curl -s -m 2 -x socks4a://localhost:1080 http://127.0.0.1:{port}/",
    "curl -s -m 2 -x http://localhost:3128 http://0x7f000001:{port}/",
    "curl -s -m 2 -x http://localhost:3128 http://2130706433:{port}/",
    "curl -s -m 2 -x http://localhost:3128 http://[::ffff:127.0.0.1]:{port}/",
    "curl -s -m 2 -x http://localhost:3128 http://0.0.0.0:{port}/",
    "curl -s -m 2 -x http://localhost:3128 -H 'Host: example.com' http://127.0.0.1:{port}/",
    "printf 'CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n' | socat -T1 - TCP:localhost:3128",
    "printf 'GET http://127.0.0.1:{port}/ HTTP/1.1\\nHost: a\\n\\n' | socat -T1 - TCP:localhost:3128",
    "socat -T1 - TCP:127.0.0.1:{port} < /dev/null",
    "socat -T1 - TCP6:[::1]:{port} < /dev/null",
    "socat -T1 - UNIX-CONNECT:{out}/host.sock < /dev/null",
    "socat -T1 - UNIX-CONNECT:$PWD/host.sock < /dev/null",
    "socat -T1 - ABSTRACT-CONNECT:{abstract} < /dev/null",
    _PY.format(family="AF_INET", kind="SOCK_STREAM") + "c.connect(('127.0.0.1',{port}))\"",
    _PY.format(family="AF_INET6", kind="SOCK_STREAM") + "c.connect(('::1',{port}))\"",
    _PY.format(family="AF_INET", kind="SOCK_DGRAM") + "c.sendto(b'x',('127.0.0.1',{port}))\"",
    _PY.format(family="AF_INET", kind="SOCK_DGRAM") + "c.sendto(b'x',('255.255.255.255',{port}))\"",
    _PY.format(family="AF_INET", kind="SOCK_RAW") + "c.sendto(b'x',('127.0.0.1',0))\"",
    _PY.format(family="AF_UNIX", kind="SOCK_STREAM") + "c.connect('{out}/host.sock')\"",
    _PY.format(family="AF_UNIX", kind="SOCK_DGRAM") + "c.sendto(b'x','{out}/host.sock')\"",
    _PY.format(family="AF_UNIX", kind="SOCK_STREAM") + "c.connect('\\0{abstract}')\"",
    _PY.format(family="AF_PACKET", kind="SOCK_RAW") + "c.bind(('lo',0))\"",
    _PY.format(family="AF_VSOCK", kind="SOCK_STREAM") + 'c.connect((2,{port}))"',
    "python3 -c \"import socket; print(socket.getaddrinfo('example.com',80))\"",
    "python3 -c \"import asyncio,socket; a,b=socket.socketpair(); a.send(b'x')\"",
    "(setsid sh -c 'sleep 0.2; exec socat -T1 - TCP:127.0.0.1:{port}' < /dev/null > /dev/null 2>&1 &)",
    "ip link set lo down; ip route add default dev lo; ip addr add 10.9.9.9/8 dev lo; ip link set lo up",
    "unshare -n socat -T1 - TCP:127.0.0.1:{port} < /dev/null",
    "nsenter -t 1 -n socat -T1 - TCP:127.0.0.1:{port} < /dev/null",
    "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -p {port} 127.0.0.1 true",
    "git ls-remote http://127.0.0.1:{port}/x; git ls-remote git://127.0.0.1:{port}/x",
    "exec 5<>/dev/tcp/127.0.0.1/{port}; bash -c 'exec 5<>/dev/tcp/127.0.0.1/{port}'",
    "for f in /proc/[0-9]*/fd/*; do readlink $f; done | grep -c socket; echo x > /proc/1/fd/1",
    "docker ps; tmux ls; ssh-add -l; gpg-connect-agent /bye; xdpyinfo; busctl list; dbus-send --system x",
)
"""No listener outside hears of anything."""

_STEERS: Final = table("e2e/attacks.steers", tuple[str, ...])
STEERS: Final = tuple(
    [
        command.replace("{d}", f"steer-{n}").replace("{n}", str(n)).replace("{{}}", "{}")
        for n, command in enumerate(_STEERS)
    ]
)
"""Nothing is left that steers git or an agent."""
