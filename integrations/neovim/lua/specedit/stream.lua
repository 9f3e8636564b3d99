--- A request to the server, whose answer comes event by event. curl does it: users have it, and it streams.
local M = {}

local uv = vim.uv or vim.loop

-- Exit codes of curl: the server was not found, refused the connection, or did not take it up in time.
local ABSENT = { [6] = true, [7] = true, [28] = true }

--- A value in curl's configuration, where it stands in quotes.
local function quoted(value)
  return '"' .. value:gsub('[\\"]', "\\%0") .. '"'
end

--- The path of a new file with this text that only this user can read, or nil and why there is none.
local function kept(text)
  local path = vim.fn.tempname()
  local file, why = uv.fs_open(path, "wx", 384) -- 0600
  if not file then
    return nil, why
  end
  local written, failed = uv.fs_write(file, text, 0)
  uv.fs_close(file)
  if written ~= #text then
    uv.fs_unlink(path)
    return nil, failed or "the disk is full"
  end
  return path
end

local function configuration(server, key, body)
  local lines = {
    "url = " .. quoted(server .. "/v1/rewrite"),
    "data-binary = " .. quoted("@" .. body),
    'header = "Content-Type: application/json"',
    'header = "Expect:"', -- else curl waits for leave to send a large body
    'noproxy = "127.0.0.1,localhost,::1"',
    "connect-timeout = 5",
    "speed-limit = 1", -- the server says something every ten seconds
    "speed-time = 120",
    "globoff",
    "no-buffer",
    "silent",
    "show-error",
  }
  if key then
    table.insert(lines, "header = " .. quoted("Authorization: Bearer " .. key))
  end
  return table.concat(lines, "\n") .. "\n"
end

local function decoded(text)
  local fine, value = pcall(vim.json.decode, text)
  return fine and type(value) == "table" and value or {}
end

--- The sentence of an error as the server writes it, or nil if this is none.
local function complaint(said)
  local error = type(said.error) == "table" and said.error or {}
  return type(error.message) == "string" and error.message or nil
end

--- Ask `server` for POST /v1/rewrite with `body`. Call `on.piece(data)` for every piece of the answer, and in
--- the end once `on.done(result)`, or `on.done(nil, sentence)`.
---
--- The arguments of a process are seen by everybody: so curl reads the key on standard input, and the text from
--- a file in Neovim's private folder, which is deleted when curl ends.
---@return function|nil stop Ends curl, and with it the server's work; `on.done` is still called.
---@return string|nil why What is wrong, if it could not even begin.
function M.post(server, key, body, on)
  if vim.fn.executable("curl") == 0 then
    return nil, "There is no curl on the PATH: install it, the server is asked with it."
  end
  local path, why = kept(vim.json.encode(body))
  if not path then
    return nil, ("The request does not fit into a temporary file (%s): make room there."):format(why)
  end

  local result, fault, stopped, began
  local event, tail, stderr, plain = "", "", "", {}

  local function take(line)
    local field, value = line:match("^(%a+): (.*)$")
    if field == "event" then
      event = value
    elseif field == "data" then
      local said = decoded(value)
      began = true
      fault = fault or complaint(said)
      if event == "piece" and type(said.tokens) == "table" then
        on.piece(said)
      elseif event == "result" and type(said.text) == "string" and type(said.problems) == "table" then
        result = said
      end
      event = ""
    elseif line ~= "" and line:sub(1, 1) ~= ":" then
      table.insert(plain, line) -- an error that comes instead of events
    end
  end

  --- What became of it, when curl has ended.
  local function outcome(code)
    fault = fault or complaint(decoded(table.concat(plain, "\n")))
    if stopped then
      return nil, "Stopped, and nothing was changed."
    elseif fault then
      return nil, fault
    elseif result then
      return result
    elseif began then
      return nil, server .. " broke off its answer: look at its log, and ask again."
    elseif ABSENT[code] then
      return nil, ("No answer from %s: start the server with `specedit serve`."):format(server)
    elseif code ~= 0 then
      return nil, ("curl cannot ask %s (%d, %s): see :help specedit-setup."):format(server, code, vim.trim(stderr))
    end
    return nil, server .. " is no server of this version of specedit: see :help specedit-setup."
  end

  local job = vim.fn.jobstart({ "curl", "-q", "--config", "-" }, {
    on_stdout = function(_, data)
      data[1] = tail .. data[1]
      tail = table.remove(data)
      for _, line in ipairs(data) do
        take(line)
      end
    end,
    on_stderr = function(_, data)
      stderr = stderr .. table.concat(data, " ")
    end,
    on_exit = function(_, code)
      uv.fs_unlink(path)
      take(tail)
      on.done(outcome(code))
    end,
  })
  vim.fn.chansend(job, configuration(server, key, path))
  vim.fn.chanclose(job, "stdin")
  return function()
    stopped = true
    vim.fn.jobstop(job)
  end
end

return M
