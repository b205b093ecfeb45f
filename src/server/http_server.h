// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 around the routes of Api: connections, the API key, limits, streams. The only file that knows the library.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/api.h"

namespace trivet::server {

/// Where to listen and whom to let in.
struct HttpOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8000;  // 0: any free one
  std::string api_key;  // what "Authorization: Bearer" must carry; empty: nothing
};

/// A listening server on threads of its own.
class HttpServer {
  class Impl;

 public:
  /// An address that is listened on. Connections wait until a server is started there.
  class Listener {
   public:
    /// Starts no thread: processes may be forked meanwhile.
    /// Errors:  kIo when the address cannot be bound, kUsage for a port out of range.
    static Result<Listener> Bind(const HttpOptions& options);
    Listener(Listener&&) noexcept;
    ~Listener();
    Listener& operator=(Listener&&) = delete;

   private:
    friend class HttpServer;
    explicit Listener(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
  };

  /// Answers connections from now on. The routes outlive it.
  static std::unique_ptr<HttpServer> Start(Api* api, Listener listener);
  /// As Stop.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  /// "http://host:port"
  std::string url() const;

  /// Accepts nothing more; what is being answered goes on. Returns at once.
  void StopAccepting();
  /// StopAccepting, and waits for the connections to end: to be called when every answer has ended or soon will.
  /// Clients that then take more than two seconds for the rest of theirs are cut off.
  void Stop();

 private:
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace trivet::server
