// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How the links of control_link.h are made.

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "chunk/base/clock.h"
#include "collectives/nccl/control/control_link.h"
#include "collectives/world/collective_call.h"

namespace castor::internal {
namespace {

// For one of several addresses, of which some may lead nowhere.
constexpr int64_t kConnectNs = 5'000'000'000;
// A rank says hello at once; what is silent for longer is no rank.
constexpr int64_t kHelloNs = 5'000'000'000;
constexpr int kLookMs = 50;

// What is said in a hello: the token, then the facts.
std::string Greeting(std::string_view token, std::string_view facts) {
  return fmt::format("{}{}", token, facts);
}

void Prepare(int fd) {
  const int on = 1;
  // Small messages, each waited for. Refusals cost time only.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

// The addresses of interfaces that are up, loopback last: other hosts have one
// of their own.
std::vector<std::string> InterfaceAddresses() {
  std::vector<std::string> outside;
  std::vector<std::string> loopback;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {"127.0.0.1"};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> host{};
    const socklen_t size =
        family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(each->ifa_addr, size, host.data(), host.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      continue;
    }
    std::string text(host.data());
    // Link-local: its zone means nothing elsewhere.
    if (text.find('%') != std::string::npos) continue;
    const bool loops = (each->ifa_flags & IFF_LOOPBACK) != 0;
    (loops ? loopback : outside).push_back(std::move(text));
  }
  outside.insert(outside.end(), loopback.begin(), loopback.end());
  return outside;
}

// Listens on all interfaces, of both families where there are both; on `*port`
// unless that is 0.
UniqueFd Listen(int family, uint16_t* port) {
  UniqueFd fd(
      socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!fd.valid()) return {};
  const int on = 1;
  // A connection of an earlier run may still be on its way out.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage address{};
  socklen_t size = 0;
  if (family == AF_INET6) {
    const int off = 0;
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&address);
    v6->sin6_family = AF_INET6;
    v6->sin6_addr = in6addr_any;
    v6->sin6_port = htons(*port);
    size = sizeof(*v6);
  } else {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&address);
    v4->sin_family = AF_INET;
    v4->sin_addr.s_addr = htonl(INADDR_ANY);
    v4->sin_port = htons(*port);
    size = sizeof(*v4);
  }
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  if (bind(fd.get(), plain, size) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    return {};
  }
  size = sizeof(address);
  if (getsockname(fd.get(), plain, &size) != 0) return {};
  *port = ntohs(family == AF_INET6
                    ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                    : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  return fd;
}

// Connects to one of the addresses that `host` has. In `why`, why not.
UniqueFd Connect(const std::string& host, uint16_t port, int64_t deadline_ns,
                 const GiveUp& give_up, std::string* why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    *why = gai_strerror(error);
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found,
                                                             freeaddrinfo);
  const SteadyClock clock;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    UniqueFd fd(socket(each->ai_family,
                       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                       IPPROTO_TCP));
    if (!fd.valid()) {
      *why = std::strerror(errno);
      continue;
    }
    int result =
        connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0 ? 0 : errno;
    while (result == EINPROGRESS) {
      if (clock.NowNs() >= deadline_ns || (give_up && give_up())) {
        result = ETIMEDOUT;
        break;
      }
      pollfd entry = {.fd = fd.get(), .events = POLLOUT, .revents = 0};
      if (poll(&entry, 1, kLookMs) <= 0) continue;
      socklen_t size = sizeof(result);
      getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &result, &size);
    }
    if (result == 0) {
      Prepare(fd.get());
      return fd;
    }
    *why = std::strerror(result);
  }
  return {};
}

Status GivenUp(int rank) {
  return Aborted(fmt::format(
      "rank {} was told to wait for the other ranks no longer", rank));
}

// Tells all, as far as they listen.
void TellAll(std::vector<std::optional<ControlLink>>& links,
             const ControlMessage& message, int64_t deadline_ns) {
  for (std::optional<ControlLink>& link : links) {
    // Whoever is gone will be missed where it is needed.
    if (!link.has_value()) continue;
    link->Send(message).IgnoreError();
    link->FlushUntil(deadline_ns).IgnoreError();
  }
}

}  // namespace

Result<ControlListener> ControlListener::Open(const std::string& host,
                                              uint16_t port) {
  ControlAddress address;
  address.port = port;
  UniqueFd socket = Listen(AF_INET6, &address.port);
  if (!socket.valid()) socket = Listen(AF_INET, &address.port);
  if (!socket.valid()) {
    const std::string where = port == 0 ? "" : fmt::format(" on port {}", port);
    return Unavailable(fmt::format("rank 0 cannot listen for the others{}: {}",
                                   where, std::strerror(errno)));
  }
  if (host.empty()) {
    address.hosts = InterfaceAddresses();
  } else {
    address.hosts = {host};
  }
  return ControlListener(std::move(socket), std::move(address));
}

Result<std::vector<ControlLink>> ControlListener::AcceptRanks(
    int world, std::string_view token, std::string_view facts,
    int64_t deadline_ns, const GiveUp& give_up) {
  struct Guest {
    ControlLink link;
    int64_t since_ns;
  };
  const SteadyClock clock;
  std::vector<Guest> guests;
  std::vector<std::optional<ControlLink>> ranks(static_cast<size_t>(world));
  int missing = world - 1;
  Status objection;
  while (missing > 0 && objection.ok() && clock.NowNs() < deadline_ns) {
    std::vector<pollfd> entries = {
        {.fd = socket_.get(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests) {
      entries.push_back(
          {.fd = guest.link.fd(), .events = POLLIN, .revents = 0});
    }
    poll(entries.data(), entries.size(), kLookMs);
    if (give_up && give_up()) objection = GivenUp(0);
    UniqueFd fresh(
        accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fresh.valid()) {
      Prepare(fresh.get());
      guests.push_back({ControlLink(std::move(fresh)), clock.NowNs()});
    }
    for (size_t g = 0; g < guests.size();) {
      std::vector<ControlMessage> messages;
      const Status heard = guests[g].link.Receive(&messages);
      if (messages.empty()) {
        const bool silent = clock.NowNs() - guests[g].since_ns > kHelloNs;
        if (!heard.ok() || silent) {
          guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(g));
        } else {
          ++g;
        }
        continue;
      }
      const ControlMessage& hello = messages.front();
      const auto r = static_cast<size_t>(hello.rank);
      const bool known =
          hello.kind == ControlKind::kHello && hello.text.starts_with(token);
      if (known && (hello.rank < 1 || hello.rank >= world || ranks[r])) {
        objection = FailedPrecondition(fmt::format(
            "two ranks of one world of {} say that they are rank {}: give each "
            "its own number",
            world, hello.rank));
      } else if (known && hello.text != Greeting(token, facts)) {
        objection = FailedPrecondition(fmt::format(
            "ranks of one world differ: rank 0 has {}, rank {} has {}", facts,
            hello.rank, hello.text.substr(token.size())));
      }
      if (known && hello.rank >= 1 && hello.rank < world && !ranks[r]) {
        ranks[r] = std::move(guests[g].link);
        --missing;
      } else if (!objection.ok()) {
        // It may be gone already.
        guests[g]
            .link.Send({.kind = ControlKind::kEnd, .status = objection})
            .IgnoreError();
      }
      guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(g));
    }
  }
  if (objection.ok() && missing > 0) {
    std::vector<int> absent;
    for (int rank = 1; rank < world; ++rank) {
      if (!ranks[static_cast<size_t>(rank)]) absent.push_back(rank);
    }
    objection = Unavailable(fmt::format(
        "{} did not find rank 0 at {} in time: do they run, and does a "
        "firewall let them through to port {}?",
        DescribeRanks(absent), fmt::join(address_.hosts, ", "), address_.port));
  }
  const int64_t soon_ns = clock.NowNs() + kHelloNs;
  if (!objection.ok()) {
    TellAll(ranks, {.kind = ControlKind::kEnd, .status = objection}, soon_ns);
    return objection;
  }
  TellAll(ranks, {.kind = ControlKind::kWelcome}, soon_ns);
  std::vector<ControlLink> links;
  for (std::optional<ControlLink>& link : ranks) {
    links.push_back(link.has_value() ? *std::move(link)
                                     : ControlLink(UniqueFd()));
  }
  return links;
}

Result<ControlLink> ConnectToRankZero(const ControlAddress& address, int rank,
                                      std::string_view token,
                                      std::string_view facts,
                                      int64_t deadline_ns,
                                      const GiveUp& give_up) {
  const SteadyClock clock;
  std::string tried;
  for (const std::string& host : address.hosts) {
    std::string why;
    UniqueFd socket = Connect(host, address.port,
                              std::min(deadline_ns, clock.NowNs() + kConnectNs),
                              give_up, &why);
    if (socket.valid()) {
      ControlLink link(std::move(socket));
      Status heard = link.Send({.kind = ControlKind::kHello,
                                .rank = rank,
                                .text = Greeting(token, facts)});
      if (heard.ok()) {
        Result<ControlMessage> answer = link.ReceiveOne(deadline_ns, give_up);
        if (answer.ok() && answer->kind == ControlKind::kWelcome) return link;
        if (answer.ok() && answer->kind == ControlKind::kEnd) {
          return answer->status;
        }
        heard = answer.ok() ? Malformed("it is no rank 0") : answer.status();
      }
      why = std::string(heard.message());
    }
    if (give_up && give_up()) return GivenUp(rank);
    tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", host, why);
  }
  return Unavailable(fmt::format(
      "rank {} does not reach rank 0 on port {} of {}: does a firewall stand "
      "between them, or does rank 0's host have an address that it does not "
      "know of itself? Then set CASTOR_CONTROL_HOST to it on rank 0",
      rank, address.port, tried));
}

}  // namespace castor::internal
