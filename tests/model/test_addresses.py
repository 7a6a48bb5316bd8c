"""Which addresses a server over HTTP may be reached at."""

from ipaddress import ip_address, ip_network

import pytest

from ironcurtain_proxy.model.server import RemoteEndpoint, is_public, is_within, plain


def test_what_is_not_of_the_public_network_is_closed() -> None:
    cases = [
        *("127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),  # noqa: S104  closed
        *("168.63.129.16", "224.0.0.1", "::1", "::", "fe80::1", "fc00::1", "fec0::1", "ff02::1"),
        *("::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "::7f00:1"),
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ]
    assert [address for address in cases if is_public(ip_address(address))] == []


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_what_is_of_the_public_network_is_open(address: str) -> None:
    assert is_public(ip_address(address))


def test_an_ipv4_address_in_disguise_is_in_its_network() -> None:
    assert is_within(ip_address("::ffff:10.1.2.3"), (ip_network("10.0.0.0/8"),))
    assert not is_within(ip_address("fd00::1"), (ip_network("10.0.0.0/8"),))
    assert str(plain(ip_address("2606:4700::1111"))) == "2606:4700::1111"


def test_an_endpoint_reaches_public_addresses_and_what_it_names() -> None:
    public = RemoteEndpoint(url="https://mcp.example/mcp", addresses=(ip_network("10.0.0.0/8"),))
    assert (public.host, public.port, public.origin) == ("mcp.example", 443, "https://mcp.example")
    assert public.may_connect(ip_address("1.1.1.1"), 443)
    assert public.may_connect(ip_address("10.1.1.1"), 443)
    assert not public.may_connect(ip_address("192.168.0.1"), 443)


def test_an_address_that_the_url_spells_out_is_open_at_its_own_port() -> None:
    spelled = RemoteEndpoint(url="http://127.0.0.1:8080/mcp")
    assert spelled.may_connect(ip_address("127.0.0.1"), 8080)
    assert not spelled.may_connect(ip_address("127.0.0.1"), 22)
    assert not spelled.may_connect(ip_address("127.0.0.2"), 8080)
    local = RemoteEndpoint(url="http://localhost:8080/mcp")
    assert local.may_connect(ip_address("::1"), 8080)
    assert not local.may_connect(ip_address("10.0.0.1"), 8080)
